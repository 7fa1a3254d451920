//go:build unix

package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// each makes a splice of each node.
func (s *scope) each(nodes []ast.Node, change func(text string) string) (all []splice) {
	for _, n := range nodes {
		from, to := s.file.span(n)
		all = append(all, splice{from, to, change(s.file.text[from:to])})
	}
	return all
}

// nodes are those for which is holds, without those that have another within them.
func (s *scope) nodes(is func(ast.Node) bool) (found []ast.Node) {
	ast.Inspect(s.node, func(n ast.Node) bool {
		if n != nil && is(n) {
			found = slices.DeleteFunc(found, func(outer ast.Node) bool { return outer.Pos() <= n.Pos() && n.End() <= outer.End() })
			found = append(found, n)
		}
		return true
	})
	return found
}

// matching are the expressions and statements that are this code.
func (s *scope) matching(code string) []ast.Node {
	is := pattern(code)
	return s.nodes(func(n ast.Node) bool {
		switch n.(type) {
		case ast.Expr, ast.Stmt:
			return is.MatchString(s.squeezed(n))
		}
		return false
	})
}

// statements are those of a list which are this code, or call a function of this name.
func (s *scope) statements(code string) []ast.Node {
	listed := make(map[ast.Node]bool)
	ast.Inspect(s.node, func(n ast.Node) bool {
		for _, statement := range statements(n) {
			listed[statement] = true
		}
		return true
	})
	is := pattern(code)
	return s.nodes(func(n ast.Node) bool {
		return listed[n] && (is.MatchString(s.squeezed(n)) || s.callsItself(n, listed, code))
	})
}

func statements(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	}
	return nil
}

// callsItself tells whether a statement calls the function, other than in a statement within it.
func (s *scope) callsItself(statement ast.Node, listed map[ast.Node]bool, function string) (found bool) {
	ast.Inspect(statement, func(n ast.Node) bool {
		found = found || s.calls(n, function)
		return n == statement || !listed[n]
	})
	return found
}

// calls tells whether a node is a call of the function: f, x.f or just the f of an x.f.
func (s *scope) calls(n ast.Node, function string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	of := s.squeezed(call.Fun)
	return of == function || strings.HasSuffix(of, "."+function)
}

// conditions are those that mention something: of if, for and case, and what is
// assigned or returned. An if mentions what stands before its condition, too.
func (s *scope) conditions(mention string) []ast.Node {
	able := make(map[ast.Node]bool)
	before := make(map[ast.Node]ast.Node)
	add := func(of ...ast.Expr) {
		for _, x := range of {
			able[x] = x != nil
		}
	}
	ast.Inspect(s.node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			add(n.Cond)
			if n.Init != nil {
				before[n.Cond] = n.Init
			}
		case *ast.ForStmt:
			add(n.Cond)
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					add(clause.(*ast.CaseClause).List...)
				}
			}
		case *ast.ReturnStmt:
			add(slices.DeleteFunc(slices.Clone(n.Results), notBoolean)...)
		case *ast.AssignStmt:
			add(slices.DeleteFunc(slices.Clone(n.Rhs), notBoolean)...)
		}
		return true
	})
	return s.nodes(func(n ast.Node) bool {
		return able[n] && (s.mentions(n, mention) || before[n] != nil && s.mentions(before[n], mention))
	})
}

// notBoolean tells whether an expression need not be a condition.
func notBoolean(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.UnaryExpr:
		return x.Op != token.NOT
	case *ast.BinaryExpr:
		return x.Op != token.LAND && x.Op != token.LOR && !isComparison(x.Op)
	}
	return true
}

func isComparison(op token.Token) bool {
	return slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, op)
}

// operands are those of && or of || that mention something.
func (s *scope) operands(op token.Token, mention string) []ast.Node {
	able := make(map[ast.Node]token.Token)
	ast.Inspect(s.node, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if ok && (b.Op == token.LAND || b.Op == token.LOR) {
			able[b.X], able[b.Y] = b.Op, b.Op
		}
		return true
	})
	inner := s.nodes(func(n ast.Node) bool { return able[n] != 0 && s.mentions(n, mention) })
	return slices.DeleteFunc(inner, func(n ast.Node) bool { return able[n] != op })
}

// mentions tells whether an expression is within a node.
func (s *scope) mentions(n ast.Node, mention string) (found bool) {
	is := pattern(mention)
	ast.Inspect(n, func(n ast.Node) bool {
		x, ok := n.(ast.Expr)
		if ok {
			found = found || is.MatchString(s.squeezed(x))
		}
		return !found
	})
	return found
}

// squeezed is a node's code without white space, and without what gofmt adds to
// or leaves out of code that stands on several lines.
func (s *scope) squeezed(n ast.Node) string {
	from, to := s.file.span(n)
	return squeeze(s.file.code[from:to])
}

func squeeze(code string) string {
	code = strings.Join(strings.Fields(code), "")
	return strings.NewReplacer(";", "", ",)", ")", ",}", "}").Replace(code)
}

// pattern matches squeezed code.
func pattern(code string) *regexp.Regexp {
	return regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(squeeze(code)), "…", ".*") + `$`)
}
