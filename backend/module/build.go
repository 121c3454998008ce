package module

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// sdkPath is the path of the Go module that holds the SDK, and of its package.
const sdkPath = "carillon"

// Build reads the module in dir and makes a static runner binary of it at out. What the go command says goes to w. The
// Source is also returned with an error, as Read does.
//
// A module inside the SDK's own Go module is built there. Any other is built in a workspace of its module and the SDK,
// written to a temporary directory: its go.mod need not know the SDK, and none of its files changes. Where both need
// the same library, the later version serves both.
func Build(ctx context.Context, dir, out string, w io.Writer) (Source, error) {
	src, err := Read(ctx, dir)
	if err != nil {
		return src, err
	}
	if out, err = filepath.Abs(out); err != nil {
		return src, fmt.Errorf("build module %s: %w", src.Module.Name, err)
	}
	temp, err := os.MkdirTemp("", "carillon-build-")
	if err != nil {
		return src, fmt.Errorf("build module %s: %w", src.Module.Name, err)
	}
	defer os.RemoveAll(temp)
	if err := Generate(src, temp); err != nil {
		return src, err
	}
	env := goEnv()
	if src.gomod.path == sdkPath {
		env = append(env, "GOWORK=off")
	} else {
		work, err := workspace(ctx, src, temp)
		if err != nil {
			return src, fmt.Errorf("build module %s: %w", src.Module.Name, err)
		}
		env = append(env, "GOWORK="+work)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-overlay", filepath.Join(temp, overlayFile), "-o", out, "./"+src.mainName())
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = src.Dir, env, w, w
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its compilers too
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return src, fmt.Errorf("build module %s: go build: %w", src.Module.Name, err)
	}
	return src, nil
}

// workspace writes a go.work of the user's module and the SDK into temp. Where the user's module already lives in a
// workspace, its members and replacements are taken over.
func workspace(ctx context.Context, src Source, temp string) (string, error) {
	sdk, err := sdkDir()
	if err != nil {
		return "", err
	}
	sdkVersion, err := goVersion(ctx, filepath.Join(sdk, "go.mod"))
	if err != nil {
		return "", err
	}
	newest := later("1.26.0", later(sdkVersion, src.gomod.version))
	args := []string{"work", "edit", "-use=" + src.gomod.dir, "-use=" + sdk}
	theirs, err := goCommand(ctx, src.Dir, "env", "GOWORK")
	if err != nil {
		return "", err
	}
	if file := strings.TrimSpace(string(theirs)); file != "" && file != "off" {
		more, v, err := members(ctx, file, src.gomod.dir, sdk)
		if err != nil {
			return "", err
		}
		args, newest = append(args, more...), later(newest, v)
	}
	file := filepath.Join(temp, "go.work")
	if err := os.WriteFile(file, []byte("go "+newest+"\n"), 0o644); err != nil {
		return "", err
	}
	if _, err := goCommand(ctx, temp, append(args, file)...); err != nil {
		return "", err
	}
	return file, nil
}

// members returns the arguments that add what the workspace in file holds beside the given modules, and its go version.
func members(ctx context.Context, file string, have ...string) ([]string, string, error) {
	text, err := goCommand(ctx, filepath.Dir(file), "work", "edit", "-json", file)
	if err != nil {
		return nil, "", err
	}
	type moduleVersion struct{ Path, Version string }
	var work struct {
		Go      string
		Use     []struct{ DiskPath string }
		Replace []struct{ Old, New moduleVersion }
	}
	if err := json.Unmarshal(text, &work); err != nil {
		return nil, "", fmt.Errorf("read %s: %w", file, err)
	}
	absolute := func(path string) string {
		if filepath.IsAbs(path) {
			return filepath.Clean(path)
		}
		return filepath.Join(filepath.Dir(file), path)
	}
	var args []string
	for _, use := range work.Use {
		if dir := absolute(use.DiskPath); !slices.Contains(have, dir) {
			args = append(args, "-use="+dir)
		}
	}
	at := func(m moduleVersion) string {
		if m.Version != "" {
			return m.Path + "@" + m.Version
		}
		return m.Path
	}
	for _, r := range work.Replace {
		if r.Old.Path == sdkPath {
			continue
		}
		if r.New.Version == "" {
			r.New.Path = absolute(r.New.Path)
		}
		args = append(args, "-replace="+at(r.Old)+"="+at(r.New))
	}
	return args, work.Go, nil
}

// later returns the later one of two versions of a go line.
func later(a, b string) string {
	if version.Compare("go"+a, "go"+b) < 0 {
		return b
	}
	return a
}

// sdkDir finds a checkout of the SDK: the one that CARILLON_SDK names, else the one that this program was built from. The
// SDK's module path names no host, so the module proxy can not serve it.
func sdkDir() (string, error) {
	if dir := os.Getenv("CARILLON_SDK"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("find the SDK: %w", err)
		}
		if !isSDK(abs) {
			return "", fmt.Errorf("find the SDK: CARILLON_SDK=%s is no checkout of Carillon: its go.mod does not say module %s", dir, sdkPath)
		}
		return abs, nil
	}
	// A binary built with -trimpath knows no directory here.
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Join(filepath.Dir(file), "..", ".."); isSDK(dir) {
			return dir, nil
		}
	}
	return "", errors.New("find the SDK: the checkout that this program was built from is not here: set CARILLON_SDK to a checkout of Carillon")
}

// isSDK reports whether dir holds the go.mod of the SDK.
func isSDK(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == "module" {
			return strings.Trim(words[1], `"`) == sdkPath
		}
	}
	return false
}

// goVersion reads the go line of a go.mod.
func goVersion(ctx context.Context, gomod string) (string, error) {
	text, err := goCommand(ctx, filepath.Dir(gomod), "mod", "edit", "-json", gomod)
	if err != nil {
		return "", err
	}
	var mod struct{ Go string }
	if err := json.Unmarshal(text, &mod); err != nil {
		return "", fmt.Errorf("read %s: %w", gomod, err)
	}
	return mod.Go, nil
}

// goCommand runs the go command and returns what it printed.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, goEnv(), &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.Bytes(), nil
}
