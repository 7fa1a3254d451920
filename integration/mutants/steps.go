//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// In the steps below, code is an expression or a statement as it stands in the source,
// without regard to white space; … in it stands for anything. A mention is an expression
// within another. Where one place is within another, the inner one is meant.
//
// What a step takes out stays in the code, without effect: else variables would be left
// without a use, and what the compiler finds to escape would change, and with that
// packages that import this one: see program.

// drop takes out the statement that is this code, or calls a function of this name.
func drop(code string) step {
	return at("drop", code, func(s *scope) []splice {
		return s.each(s.statements(code), func(text string) string { return "for range 0 { " + text + " }" })
	})
}

// before puts a statement before the one that is this code or calls a function of this name.
func before(code, statement string) step {
	return at("before", code, func(s *scope) []splice {
		return s.each(s.statements(code), func(text string) string { return statement + "; " + text })
	})
}

// after puts it behind that.
func after(code, statement string) step {
	return at("after", code, func(s *scope) []splice {
		return s.each(s.statements(code), func(text string) string { return text + "; " + statement })
	})
}

// returns has the function return at once.
func returns(results string) step {
	return at("returns", results, func(s *scope) []splice {
		d, ok := s.node.(*ast.FuncDecl)
		if !ok {
			return nil
		}
		begin := s.file.tokens.Offset(d.Body.Lbrace) + 1
		return []splice{{begin, begin, " for range 1 { return " + results + " };"}}
	})
}

// never makes the condition that mentions this false.
func never(mention string) step {
	return at("never", mention, func(s *scope) []splice {
		return s.each(s.conditions(mention), func(text string) string { return "((" + text + ") && false)" })
	})
}

// always makes it true.
func always(mention string) step {
	return at("always", mention, func(s *scope) []splice {
		return s.each(s.conditions(mention), func(text string) string { return "((" + text + ") || true)" })
	})
}

// without leaves out the operand of && or || that mentions this.
func without(mention string) step {
	return at("without", mention, func(s *scope) []splice {
		return append(
			s.each(s.operands(token.LAND, mention), func(text string) string { return "((" + text + ") || true)" }),
			s.each(s.operands(token.LOR, mention), func(text string) string { return "((" + text + ") && false)" })...)
	})
}

// replace puts other code in the place of this.
func replace(code, text string) step {
	return at("replace", code, func(s *scope) []splice {
		return s.each(s.matching(code), func(string) string { return text })
	})
}

// argument replaces an argument, from 0, of the call of a function of this name.
func argument(function string, i int, text string) step {
	return at("argument", function, func(s *scope) []splice {
		var found []ast.Node
		for _, n := range s.nodes(func(n ast.Node) bool { return s.calls(n, function) }) {
			args := n.(*ast.CallExpr).Args
			if i < len(args) {
				found = append(found, args[i])
			}
		}
		return s.each(found, func(string) string { return text })
	})
}

// omit takes an element out of a composite literal, or an argument out of a call:
// the one that is this code, or has it as its key.
func omit(code string) step {
	return at("omit", code, func(s *scope) (found []splice) {
		is := pattern(code)
		s.nodes(func(n ast.Node) bool {
			list := elements(n)
			for i, e := range list {
				pair, ok := e.(*ast.KeyValueExpr)
				if !is.MatchString(s.squeezed(e)) && (!ok || !is.MatchString(s.squeezed(pair.Key))) {
					continue
				}
				from, to := s.file.span(e)
				switch {
				case strings.HasPrefix(s.file.code[to:], ","):
					to++
				case i > 0:
					_, from = s.file.span(list[i-1])
				}
				found = append(found, splice{from, to, ""})
			}
			return false
		})
		return found
	})
}

func elements(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CompositeLit:
		return n.Elts
	case *ast.CallExpr:
		return n.Args
	}
	return nil
}

// text replaces a fragment of a string, which mostly is SQL.
func text(fragment, other string) step {
	return at("text", fragment, func(s *scope) (found []splice) {
		s.nodes(func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if ok && lit.Kind == token.STRING {
				from, to := s.file.span(n)
				found = append(found, literally(s.file.text[from:to], from, fragment, other)...)
			}
			return false
		})
		return found
	})
}

// literally finds a fragment in a text, however its words are spaced.
func literally(in string, offset int, fragment, other string) (found []splice) {
	words := strings.Fields(fragment)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	for _, place := range regexp.MustCompile(strings.Join(words, `\s+`)).FindAllStringIndex(in, -1) {
		found = append(found, splice{offset + place[0], offset + place[1], other})
	}
	return found
}

// within takes a step in a part of the declaration only.
func within(code string, st step) step {
	return at("within", code, func(s *scope) (found []splice) {
		for _, part := range s.matching(code) {
			found = append(found, st.find(&scope{file: s.file, node: part})...)
		}
		return found
	})
}

func at(name, what string, find func(*scope) []splice) step {
	return step{call: fmt.Sprintf("%s(%q)", name, what), find: find}
}
