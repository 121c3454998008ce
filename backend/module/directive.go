package module

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"carillon/backend/core/schema"
)

// tools are the two spellings of the directives.
var tools = []string{"carillon", "ftl"}

// file reads the directives of one file and the functions that they stand on.
func (r *reader) file(f *ast.File) {
	docOf := map[*ast.CommentGroup]*ast.FuncDecl{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Doc != nil {
			docOf[fn.Doc] = fn
		}
	}
	for _, group := range f.Comments {
		var as []schema.Annotation
		for _, c := range group.List {
			if a, ok := r.directive(c); ok {
				as = append(as, a)
			} else {
				r.nearMiss(c)
			}
		}
		fn := docOf[group]
		switch {
		case len(as) == 0:
		case fn == nil:
			r.misplaced(as, below(f, group))
		case fn.Recv != nil:
			r.misplaced(as, "a method can not be a verb: write a function that calls "+fn.Name.Name)
		default:
			r.function(fn, as)
		}
	}
}

// directive reads one comment that is spelled as a directive of ours.
func (r *reader) directive(c *ast.Comment) (schema.Annotation, bool) {
	d, ok := ast.ParseDirective(c.Slash, c.Text)
	if !ok || !slices.Contains(tools, d.Tool) {
		return schema.Annotation{}, false
	}
	a := schema.Annotation{Name: d.Name, Args: d.Args, Written: d.Tool + ":" + d.Name}
	a.At = r.span(c.Slash, len("//")+len(a.Written))
	if d.Args != "" {
		a.ArgsAt = r.span(d.ArgsPos, len(d.Args))
	}
	return a, true
}

// misplaced reports directives that stand on no function.
func (r *reader) misplaced(as []schema.Annotation, hint string) {
	for _, a := range as {
		r.faults = append(r.faults, &schema.Error{Span: a.At, Hint: hint, Message: fmt.Sprintf("unexpected directive %q", a.Written)})
	}
}

// below says why a directive stands on no function, from what follows it in the file.
func below(f *ast.File, group *ast.CommentGroup) string {
	const rule = "it stands directly above a function"
	if group.End() <= f.Package {
		return rule + ", not above the package clause"
	}
	for _, d := range f.Decls {
		if d.Pos() <= group.Pos() && group.End() <= d.End() {
			if doc, ok := d.(*ast.GenDecl); ok && doc.Doc != group {
				return rule + ", not inside this " + doc.Tok.String()
			}
			if _, ok := d.(*ast.FuncDecl); ok {
				return rule + ", not inside one"
			}
		}
		if group.End() > d.Pos() {
			continue
		}
		switch d := d.(type) {
		case *ast.FuncDecl:
			return "remove the lines between it and func " + d.Name.Name
		case *ast.GenDecl:
			return rule + ", not above this " + d.Tok.String()
		}
	}
	return rule
}

// function makes a verb of a function with directives.
func (r *reader) function(fn *ast.FuncDecl, as []schema.Annotation) {
	s := r.source
	v := schema.Verb{Name: verbName(fn.Name.Name), Request: schema.Unit, Response: schema.Unit}
	i := len(s.Module.Verbs)
	r.faults = append(r.faults, schema.Annotate(&v, i, as, r.where)...)
	declared := slices.ContainsFunc(as, func(a schema.Annotation) bool { return a.Name == "verb" })
	if v.Cron == nil && !declared {
		return
	}
	name := r.span(fn.Name.Pos(), len(fn.Name.Name))
	r.where[schema.Part{Verb: i, Name: schema.PartName}] = schema.Place{Span: name}
	switch {
	case fn.Name.Name == "_":
		r.fault(fn.Name.Pos(), 1, "", "verb function must be named")
		return
	case !fn.Name.IsExported():
		r.fault(fn.Name.Pos(), len(fn.Name.Name), "write func "+exportedName(fn.Name.Name), "verb name must be exported")
	}
	if p := fn.Type.TypeParams; p != nil && p.NumFields() > 0 {
		r.fault(p.Pos(), int(p.End()-p.Pos()), "", "verb function can not have type parameters")
	}
	r.parameters(fn, &v, i)
	r.results(fn, &v, i)
	s.Module.Verbs = append(s.Module.Verbs, v)
	s.Funcs[v.Name], s.makers[v.Name] = fn.Name.Name, maker(fn)
}

// maker is the SDK's function that makes a handler of a function.
func maker(fn *ast.FuncDecl) string {
	switch takes, gives := len(flatten(fn.Type.Params)) > 1, len(flatten(fn.Type.Results)) > 1; {
	case takes && gives:
		return "Func"
	case takes:
		return "Takes"
	case gives:
		return "Gives"
	}
	return "Plain"
}

const (
	signature        = "func X(ctx context.Context) error"
	requestSignature = "func X(ctx context.Context, request Q) (R, error), without Q or R where there is none"
)

// form is what the function of a verb looks like.
func form(v *schema.Verb) string {
	if v.Cron != nil {
		return "a verb is " + signature
	}
	return "a verb is " + requestSignature
}

// parameters checks that a verb takes a context, and notes a request.
func (r *reader) parameters(fn *ast.FuncDecl, v *schema.Verb, index int) {
	params := flatten(fn.Type.Params)
	if len(params) == 0 {
		r.fault(fn.Name.Pos(), len(fn.Name.Name), form(v), "first parameter must be context.Context")
		return
	}
	request := params[1:]
	if t, ok := r.typeOf(params[0].typ); ok && !isContext(t) {
		r.faultAt(params[0].at, form(v), "first parameter must be context.Context")
		if len(params) == 1 { // a lone parameter of another type was meant as the request
			return
		}
	}
	if len(request) == 0 {
		return
	}
	v.Request = r.verbType(v, request[0], "Request")
	r.where[schema.Part{Verb: index, Name: schema.PartRequest}] = schema.Place{Span: r.nodeSpan(request[0].at)}
	if v.Cron != nil {
		return
	}
	if _, variadic := request[0].typ.(*ast.Ellipsis); variadic {
		r.faultAt(request[0].at, "write a slice", "a verb takes one request, not any number of them")
	}
	if len(request) > 1 {
		r.faultAt(request[1].at, "write a struct of them", "a verb takes one request, not %d", len(request))
	}
}

// results checks that a verb returns an error, and notes a response.
func (r *reader) results(fn *ast.FuncDecl, v *schema.Verb, index int) {
	results := flatten(fn.Type.Results)
	if len(results) == 0 {
		r.fault(fn.Name.Pos(), len(fn.Name.Name), form(v), "must at least return an error")
		return
	}
	last := results[len(results)-1]
	if t, ok := r.typeOf(last.typ); ok && !types.Identical(t, types.Universe.Lookup("error").Type()) {
		r.faultAt(last.at, form(v), "must return an error but is %s", r.typeText(last.typ))
	}
	if len(results) == 1 {
		return
	}
	v.Response = r.verbType(v, results[0], "Response")
	r.where[schema.Part{Verb: index, Name: schema.PartResponse}] = schema.Place{Span: r.nodeSpan(results[0].at)}
	if len(results) > 2 && v.Cron == nil {
		r.faultAt(results[1].at, "write a struct of them", "a verb returns one response, not %d", len(results)-1)
	}
}

// verbType is the schema's text of a request or response, whose data types are noted. Of a cron job, which can have
// neither, it is what stands there.
func (r *reader) verbType(v *schema.Verb, p parameter, what string) string {
	if v.Cron != nil {
		return r.typeText(p.typ)
	}
	t, ok := r.typeOf(p.typ)
	if !ok { // it does not compile, which is a fault already
		return schema.Any
	}
	if types.TypeString(types.Unalias(t), nil) == sdkPath+".Unit" {
		return schema.Unit
	}
	return r.data.text(t, spot{span: r.nodeSpan(p.at), name: exportedName(plainName(v.Name)) + what})
}

// parameter is one parameter or result: its type, and what to point at.
type parameter struct {
	typ ast.Expr
	at  ast.Node
}

// flatten gives (a, b int) two entries.
func flatten(list *ast.FieldList) []parameter {
	var all []parameter
	if list == nil {
		return nil
	}
	for _, f := range list.List {
		if len(f.Names) == 0 {
			all = append(all, parameter{f.Type, f.Type})
		}
		for i, name := range f.Names {
			if i == len(f.Names)-1 {
				all = append(all, parameter{f.Type, f})
			} else {
				all = append(all, parameter{f.Type, name})
			}
		}
	}
	return all
}

// typeOf is the checked type; not ok where the checker already complained or did not run.
func (r *reader) typeOf(e ast.Expr) (types.Type, bool) {
	if r.info == nil {
		return nil, false
	}
	t := r.info.Types[e].Type
	return t, t != nil && t != types.Typ[types.Invalid]
}

func (r *reader) typeText(e ast.Expr) string {
	if t, ok := r.typeOf(e); ok {
		return types.TypeString(t, func(p *types.Package) string { return p.Name() })
	}
	return types.ExprString(e)
}

func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Context" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context"
}

func (r *reader) faultAt(n ast.Node, hint, format string, args ...any) {
	r.faults = append(r.faults, &schema.Error{Span: r.nodeSpan(n), Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// nodeSpan covers a node on its first line.
func (r *reader) nodeSpan(n ast.Node) schema.Span {
	from := n.Pos()
	if f, ok := n.(*ast.Field); ok && len(f.Names) > 0 {
		from = f.Names[len(f.Names)-1].Pos()
	}
	length := int(n.End() - from)
	if r.line(from) != r.line(n.End()) {
		length = 1
	}
	return r.span(from, length)
}

func (r *reader) line(pos token.Pos) int { return r.fset.PositionFor(pos, false).Line }

// verbName is a function's name with its first letter lowered.
func verbName(fn string) string {
	if fn == "" {
		return ""
	}
	return strings.ToLower(fn[:1]) + fn[1:]
}

func exportedName(fn string) string { return strings.ToUpper(fn[:1]) + fn[1:] }
