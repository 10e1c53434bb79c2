package prompt

import "slices"

// editor is one line of text under a cursor.
type editor struct {
	text   []rune
	cursor int // characters before it
	most   int // characters
}

func newEditor(s string, most int) editor {
	text := []rune(s)
	return editor{text: text, cursor: len(text), most: max(most, len(text))}
}

func (e *editor) String() string { return string(e.text) }

func (e *editor) insert(s string) {
	add := []rune(s)
	add = add[:min(len(add), e.most-len(e.text))]
	e.text = slices.Insert(e.text, e.cursor, add...)
	e.cursor += len(add)
}

func (e *editor) key(name, typed string) {
	switch name {
	case "left", "ctrl+b":
		e.cursor = max(0, e.cursor-1)
	case "right", "ctrl+f":
		e.cursor = min(len(e.text), e.cursor+1)
	case "home", "ctrl+a":
		e.cursor = 0
	case "end", "ctrl+e":
		e.cursor = len(e.text)
	case "backspace", "ctrl+h":
		if e.cursor > 0 {
			e.cursor--
			e.text = slices.Delete(e.text, e.cursor, e.cursor+1)
		}
	case "delete", "ctrl+d":
		if e.cursor < len(e.text) {
			e.text = slices.Delete(e.text, e.cursor, e.cursor+1)
		}
	case "ctrl+u":
		e.text = slices.Delete(e.text, 0, e.cursor)
		e.cursor = 0
	case "ctrl+k":
		e.text = e.text[:e.cursor]
	case "ctrl+w":
		from := e.cursor
		for from > 0 && e.text[from-1] == ' ' {
			from--
		}
		for from > 0 && e.text[from-1] != ' ' {
			from--
		}
		e.text = slices.Delete(e.text, from, e.cursor)
		e.cursor = from
	default:
		e.insert(typed)
	}
}
