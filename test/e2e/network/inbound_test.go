package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/internal/nsutil"
	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// Published ports reach a sandbox whose profile says so, through podman's own
// network of either kind, and open nothing else.
func TestPublishedPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("ok.test", "A "+good)
	p := w.place(harness.SandboxCurrent, profile("filt", "filtered", []string{"ok.test"}, nil)+"inbound = true\n"+profile("shut", "filtered", []string{"ok.test"}, nil))
	p.Lazaret(p.ws, "--annotation=dev.lazaret.profile=shut", "--publish=127.0.0.1:18079:8080", harness.Busybox, "true").Fails(t, 126, "published ports refused", "inbound = true")
	for port, network := range map[int]string{18080: "slirp4netns", 18081: "bridge"} {
		p.sandbox(network, filt, "--network="+network, fmt.Sprintf("--publish=127.0.0.1:%d:8080", port))
		p.Podman("exec", "-d", network, "sh", "-c", "mkdir /tmp/www; echo served by "+network+" >/tmp/www/index.html; exec httpd -f -p 8080 -h /tmp/www").OK(t)
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, addr string) (c net.Conn, err error) {
				err = nsutil.Do(w.host, func() error { c, err = new(net.Dialer).DialContext(ctx, "tcp4", addr); return err })
				return c, err
			},
		}}
		said := ""
		p.Eventually("the published port answers", 30*time.Second, func() bool {
			r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
			if err != nil {
				said = err.Error()
				return false
			}
			body, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			said = string(body)
			return err == nil && strings.Contains(said, "served by "+network)
		})
		addr := strings.Fields(p.Podman("exec", network, "sh", "-c", "cat /etc/resolv.conf").OK(t))
		p.all(network, reaches("line", "tcp", "ok.test:22", "hi"), fails("refused", "tcp", bad+":22"), fails("refused", "tcp", addr[len(addr)-1]+":8080"))
	}
}
