package module

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"

	"carillon/backend/core/schema"
)

// goModule is the Go module that a package belongs to.
type goModule struct {
	path    string
	dir     string
	version string // of the go line, e.g. 1.26.0
}

// goEnv is the environment of every go command that this package runs: what is read is what is built, on any machine.
func goEnv() []string { return append(os.Environ(), "CGO_ENABLED=0") }

// readGo loads the package in s.Dir: its files are parsed and type checked here, its imports come as export data.
func (s *Source) readGo(ctx context.Context) (schema.Where, schema.Errors, error) {
	root, err := s.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.importPath, s.pkgName = root.PkgPath, root.Name
	s.gomod = goModule{path: root.Module.Path, dir: root.Module.Dir, version: root.Module.GoVersion}
	s.collect(root)

	r := reader{source: s, fset: token.NewFileSet(), lines: map[string][]string{}, where: schema.Where{}}
	files := r.parse(root.GoFiles)
	checked := len(r.faults) == 0
	if checked {
		r.check(root, files)
	}
	r.dependencies(root)
	if len(r.faults) == 0 {
		for _, e := range root.Errors { // what only the compiler and the go command see
			r.faults = append(r.faults, r.compilerOutput(e)...)
		}
	}
	s.Module = schema.Module{Language: schema.Go, Name: root.Name}
	if len(files) > 0 {
		name := files[0].Name
		r.where[schema.Part{Verb: -1, Name: schema.PartName}] = schema.Place{Span: r.span(name.Pos(), len(name.Name))}
		if root.Name == "main" {
			r.fault(name.Pos(), len(name.Name), "give the package a name of its own, the runner's main is generated", "a module can not be package main")
		}
	}
	s.Funcs, s.makers = map[string]string{}, map[string]string{}
	r.data = newDataReader(&r)
	r.data.pkg = r.pkg
	for _, f := range files {
		r.file(f)
	}
	s.Module.Data = r.data.sorted()
	return r.where, r.faults, nil
}

// load asks the go command for the package in s.Dir and all that it imports.
func (s *Source) load(ctx context.Context) (*packages.Package, error) {
	if !inGoModule(s.Dir) {
		return nil, noModule(s.Dir)
	}
	pkgs, err := packages.Load(&packages.Config{
		Context: ctx,
		Dir:     s.Dir,
		Env:     goEnv(),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedEmbedFiles |
			packages.NeedImports | packages.NeedDeps | packages.NeedModule | packages.NeedExportFile,
		BuildFlags: []string{"-trimpath"},
	}, ".")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("the go command is not on the PATH: install Go 1.26 or later")
	case err != nil:
		return nil, fmt.Errorf("load the Go package: %w", err)
	case len(pkgs) == 0: // the go command gave up, and its reason was lost on the way
		if _, err := goCommand(ctx, s.Dir, "list", "."); err != nil {
			return nil, fmt.Errorf("load the Go package: %w", err)
		}
		return nil, errors.New("load the Go package: the go command names none")
	case len(pkgs) > 1:
		return nil, fmt.Errorf("load the Go package: the go command names %d", len(pkgs))
	}
	root := pkgs[0]
	if root.Module == nil || root.Module.Dir == "" {
		if len(root.Errors) > 0 {
			return nil, fmt.Errorf("load the Go package: %w", root.Errors[0])
		}
		return nil, noModule(s.Dir)
	}
	return root, nil
}

// inGoModule reports whether a go.mod stands in dir or above it.
func inGoModule(dir string) bool {
	for {
		if isRegular(filepath.Join(dir, "go.mod")) {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}

// collect notes the files of the package and of every package beside it that it depends on: those of its own Go module and
// of others that are read from a directory. What comes from the module cache is pinned by go.sum.
func (s *Source) collect(root *packages.Package) {
	add := func(name, path string) {
		if isRegular(path) {
			s.inputs = append(s.inputs, inputFile{name, path})
			s.watch = append(s.watch, path)
		}
	}
	mods := map[string]bool{}
	packages.Visit([]*packages.Package{root}, nil, func(p *packages.Package) {
		if !local(p.Module) {
			return
		}
		dir := p.Dir
		s.watch = append(s.watch, dir)
		for _, file := range slices.Concat(p.GoFiles, p.OtherFiles, p.EmbedFiles, p.IgnoredFiles) {
			rel, err := filepath.Rel(dir, file)
			if err != nil || strings.HasSuffix(file, "_test.go") {
				continue
			}
			add(p.PkgPath+"/"+filepath.ToSlash(rel), file)
		}
		if m := p.Module; !mods[m.Path] {
			mods[m.Path] = true
			add(m.Path+"/go.mod", filepath.Join(m.Dir, "go.mod"))
			add(m.Path+"/go.sum", filepath.Join(m.Dir, "go.sum"))
		}
	})
	slices.Sort(s.watch)
	s.watch = slices.Compact(s.watch)
}

func local(m *packages.Module) bool {
	if m == nil || m.Dir == "" {
		return false
	}
	return m.Main || m.Replace != nil && m.Replace.Version == ""
}

// reader turns one package's syntax into verbs. Only Read's goroutine touches it.
type reader struct {
	source *Source
	fset   *token.FileSet
	lines  map[string][]string // by file, for the lines that faults repeat
	info   *types.Info         // nil when the package was not type checked
	pkg    *types.Package
	data   *dataReader
	where  schema.Where
	faults schema.Errors
}

func (r *reader) parse(paths []string) []*ast.File {
	var files []*ast.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			r.faults = append(r.faults, &schema.Error{Message: fmt.Sprintf("read %s: %v", r.shown(path), err), Err: err})
			continue
		}
		r.lines[path] = strings.Split(string(text), "\n")
		f, err := parser.ParseFile(r.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if list, ok := errors.AsType[scanner.ErrorList](err); ok {
			for _, e := range list {
				r.faults = append(r.faults, &schema.Error{Span: r.spanAt(e.Pos.Filename, e.Pos.Line, e.Pos.Column, 1), Message: e.Msg})
			}
			continue // what stands where is not certain in a file that does not parse
		}
		files = append(files, f)
	}
	return files
}

// check type checks the package and reports what does not compile.
func (r *reader) check(root *packages.Package, files []*ast.File) {
	lookup := func(path string) (io.ReadCloser, error) {
		p, ok := root.Imports[path]
		if !ok || p.ExportFile == "" {
			if ok && len(p.Errors) > 0 && !local(p.Module) {
				return nil, errors.New(p.Errors[0].Msg)
			}
			return nil, errors.New("it does not compile")
		}
		return os.Open(p.ExportFile)
	}
	r.info = &types.Info{Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{
		Importer: importer.ForCompiler(r.fset, "gc", lookup),
		Sizes:    types.SizesFor("gc", runtime.GOARCH),
		Error: func(err error) {
			if e, ok := errors.AsType[types.Error](err); ok {
				r.fault(e.Pos, 1, "", "%s", strings.TrimPrefix(e.Msg, "\t"))
			}
		},
	}
	if v := r.source.gomod.version; v != "" {
		config.GoVersion = "go" + v
	}
	// The error is the first of those that were handed to Error.
	r.pkg, _ = config.Check(root.PkgPath, r.fset, files, r.info)
}

// dependencies reports what does not compile in the packages that are developed with this one.
func (r *reader) dependencies(root *packages.Package) {
	packages.Visit([]*packages.Package{root}, nil, func(p *packages.Package) {
		if p == root || !local(p.Module) {
			return
		}
		for _, e := range p.Errors {
			r.faults = append(r.faults, r.compilerOutput(e)...)
		}
	})
}

// compilerOutput places the errors of a package whose compiler's output came as one text: a heading and a line for each.
func (r *reader) compilerOutput(e packages.Error) schema.Errors {
	heading, rest, _ := strings.Cut(e.Msg, "\n")
	if !strings.HasPrefix(heading, "# ") {
		return schema.Errors{r.loadError(e)}
	}
	var es schema.Errors
	for line := range strings.SplitSeq(strings.TrimRight(rest, "\n"), "\n") {
		pos, msg, ok := strings.Cut(line, ": ")
		if _, n := cutNumber(pos); ok && n > 0 {
			if i := strings.IndexByte(pos, ':'); i > 0 && !filepath.IsAbs(pos) {
				pos = filepath.Join(r.source.Dir, pos[:i]) + pos[i:]
			}
			es = append(es, r.loadError(packages.Error{Pos: pos, Msg: msg}))
		} else if len(es) > 0 {
			es[len(es)-1].Message += "\n" + line
		}
	}
	if len(es) == 0 {
		return schema.Errors{r.loadError(e)}
	}
	return es
}

// loadError places an error of the go command, whose position is a text.
func (r *reader) loadError(e packages.Error) *schema.Error {
	rest, col := cutNumber(e.Pos)
	path, line := cutNumber(rest)
	if line == 0 {
		path, line, col = rest, col, 0
	}
	if path == "" || path == "-" || line == 0 {
		return &schema.Error{Span: schema.Span{Position: schema.Position{File: r.shown(r.source.Dir)}}, Message: e.Msg}
	}
	if _, known := r.lines[path]; !known {
		text, _ := os.ReadFile(path) // without it the line is not shown
		r.lines[path] = strings.Split(string(text), "\n")
	}
	return &schema.Error{Span: r.spanAt(path, line, col, 1), Message: e.Msg}
}

// cutNumber takes a trailing :n off s.
func cutNumber(s string) (string, int) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil {
		return s, 0
	}
	return s[:i], n
}

func (r *reader) fault(pos token.Pos, length int, hint, format string, args ...any) {
	r.faults = append(r.faults, &schema.Error{Span: r.span(pos, length), Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// span is the place of length bytes at pos; line directives of generated files are not followed.
func (r *reader) span(pos token.Pos, length int) schema.Span {
	p := r.fset.PositionFor(pos, false)
	return r.spanAt(p.Filename, p.Line, p.Column, length)
}

func (r *reader) spanAt(path string, line, column, length int) schema.Span {
	span := schema.Span{Position: schema.Position{File: r.shown(path), Line: line, Column: column}, Length: length}
	if lines := r.lines[path]; 0 < line && line <= len(lines) {
		span.Source = strings.TrimSuffix(lines[line-1], "\r")
	}
	return span
}

// shown is a path as the person who gave the directory would write it.
func (r *reader) shown(path string) string { return r.source.shown(path) }

func (s *Source) shown(path string) string {
	rel, err := filepath.Rel(s.Dir, path)
	if err != nil || s.given == "" {
		return path
	}
	return filepath.Join(s.given, rel)
}
