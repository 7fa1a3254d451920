package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// jsonNode is a value of a JSON text, with those inside it.
type jsonNode struct {
	Key      string // in quotation marks; empty: it is in a list, or the whole text
	Value    string // as JSON; empty: it has Children, or could have
	Kind     string // object, array or text
	Children []jsonNode
	Open     bool // it is shown with its children
}

const (
	mostNodes = 2000 // of a text that is shown as a tree
	mostDepth = 40
	openNodes = 60 // of a text that is shown with all of them
)

var errTooLarge = errors.New("too large for a tree") // immutable

// jsonTree is a text as a tree, or nil if it is no JSON object or list, or too large for that.
func jsonTree(text []byte) *jsonNode {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	nodes := 0
	root, err := readNode(d, 0, &nodes)
	if _, end := d.Token(); err != nil || end != io.EOF || root.Kind == "text" {
		return nil
	}
	root.open(nodes <= openNodes, true)
	return &root
}

// readNode reads a value, its keys in their order.
func readNode(d *json.Decoder, depth int, nodes *int) (n jsonNode, err error) {
	if *nodes++; *nodes > mostNodes || depth > mostDepth {
		return n, errTooLarge
	}
	token, err := d.Token()
	if err != nil {
		return n, err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		n.Kind = "text"
		n.Value, err = jsonText(token)
		return n, err
	}
	n.Kind = map[json.Delim]string{'{': "object", '[': "array"}[delim]
	for d.More() {
		key := ""
		if n.Kind == "object" {
			name, err := d.Token()
			if err != nil {
				return n, err
			}
			if key, err = jsonText(name); err != nil {
				return n, err
			}
		}
		child, err := readNode(d, depth+1, nodes)
		if err != nil {
			return n, err
		}
		child.Key = key
		n.Children = append(n.Children, child)
	}
	_, err = d.Token() // its end
	return n, err
}

// jsonText is a value as JSON, in which < and > are as they are: the template escapes them.
func jsonText(token json.Token) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(token)
	return string(bytes.TrimSpace(b.Bytes())), err
}

// open opens the node, and those inside it if all are to be.
func (n *jsonNode) open(all, first bool) {
	n.Open = all || first
	for i := range n.Children {
		n.Children[i].open(all, false)
	}
}

// Size is what a closed node says of its children.
func (n jsonNode) Size() string {
	if n.Kind == "array" {
		return plural(len(n.Children), "item")
	}
	return plural(len(n.Children), "field")
}

// Marks are the brackets of a node with children.
func (n jsonNode) Marks() string {
	if n.Kind == "array" {
		return "[ ]"
	}
	return "{ }"
}
