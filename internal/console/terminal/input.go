package terminal

import (
	"fmt"
	"os"

	"github.com/muesli/cancelreader"
)

// readTerminal reads the user's terminal until stop is called, which leaves what
// is typed afterwards to whoever reads next.
func readTerminal(f *os.File, to chan<- []byte, done <-chan struct{}) (stop func(), err error) {
	cr, err := cancelreader.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read the terminal: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		readAll(cr, to, done)
	}()
	return func() {
		if cr.Cancel() {
			go func() {
				<-ended
				_ = cr.Close() // of epoll only
			}()
		}
	}, nil
}
