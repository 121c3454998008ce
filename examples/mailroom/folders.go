package mailroom

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"carillon"
)

// maxCounted bounds the files of one count.
const maxCounted = 10_000

// isID says that a text is the id of a mail, and so the name of a file and no path.
func isID(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 32 && strings.ToLower(s) == s
}

func (f folders) mail(id string) string { return filepath.Join(f.outbox, id+".eml") }
func (f folders) kept(id string) string { return filepath.Join(f.archived, id+".eml.gz") }

// put writes a mail under its id unless it is there already, archived or not. Of two that try at the same time one does.
func (f folders) put(id string, text []byte, now time.Time) (Receipt, error) {
	for _, file := range []string{f.mail(id), f.kept(id)} {
		if info, err := os.Stat(file); err == nil {
			return Receipt{ID: id, File: file, Sent: info.ModTime().UTC()}, nil
		}
	}
	head := fmt.Sprintf("Date: %s\r\nMessage-ID: <%s@mailroom.invalid>\r\n", now.Format(time.RFC1123Z), id)
	err := whole(f.mail(id), func(w io.Writer) error {
		_, err := io.Copy(w, io.MultiReader(strings.NewReader(head), strings.NewReader(string(text))))
		return err
	})
	if err != nil {
		return Receipt{}, fmt.Errorf("write mail %s: %w", id, err)
	}
	info, err := os.Stat(f.mail(id))
	if err != nil {
		return Receipt{}, fmt.Errorf("write mail %s: %w", id, err)
	}
	return Receipt{ID: id, File: f.mail(id), Sent: info.ModTime().UTC()}, nil
}

// whole makes a file with all of its content, or none. One of that name that is there already stays as it is.
func whole(file string, write func(io.Writer) error) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(file), ".writing-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := errors.Join(write(temp), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// archive compresses a mail; one that is archived already is left alone.
func (f folders) archive(id string) error {
	mail, err := os.Open(f.mail(id))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(f.kept(id)); err == nil {
			return nil
		}
		return carillon.Fail(fmt.Errorf("there is no mail %s", id))
	}
	if err != nil {
		return fmt.Errorf("archive mail %s: %w", id, err)
	}
	defer mail.Close()
	err = whole(f.kept(id), func(w io.Writer) error {
		z := gzip.NewWriter(w)
		_, err := io.Copy(z, mail)
		return errors.Join(err, z.Close())
	})
	if err != nil {
		return fmt.Errorf("archive mail %s: %w", id, err)
	}
	if err := os.Remove(f.mail(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("archive mail %s: %w", id, err)
	}
	return nil
}

// count reads the mail of the outbox that was written on a day.
func (f folders) count(ctx context.Context, day time.Time) (Summary, error) {
	s := Summary{ByDomain: map[string]int{}}
	entries, err := os.ReadDir(f.outbox)
	if err != nil {
		return s, fmt.Errorf("read the outbox: %w", err)
	}
	for n, e := range entries {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		if n >= maxCounted {
			s.Truncated = true
			break
		}
		if n%100 == 0 {
			carillon.Progress(ctx, fmt.Sprintf("%d of %d files read", n, len(entries)))
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(e.Name(), ".eml") || info.ModTime().UTC().Format(time.DateOnly) != day.Format(time.DateOnly) {
			continue // archived meanwhile, or not of this day
		}
		text, err := os.ReadFile(filepath.Join(f.outbox, e.Name()))
		if err != nil {
			continue
		}
		s.Mails++
		s.Bytes += info.Size()
		s.ByDomain[domain(text)]++
	}
	return s, nil
}
