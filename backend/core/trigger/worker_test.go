package trigger

import (
	"slices"
	"strings"
	"testing"
)

func TestAWorkerIsOneVerb(t *testing.T) {
	refs := []string{"client", "mail.send", "mail.send", "print.other", "print.print", "zip.pack", "files.pack", "files.unpack", "files.pack", "notes.write", "files.shareUpload"}
	for name, want := range map[string]string{
		"client": "client", "mail": "mail.send", "send": "mail.send", "mail.send": "mail.send", "print": "print.print", "other": "print.other", "zip": "zip.pack",
		"pack": "", "files": "", "unpack": "files.unpack", "files.pack": "files.pack", "notes": "notes.write", "": "", "nobody": "", "mail.nobody": "", ".send": "", "mail.": "",
		"share-upload": "files.shareUpload", "shareUpload": "files.shareUpload", "files.share-upload": "files.shareUpload", "share": "", "share-": "",
	} {
		for range 2 { // in whichever order
			got, ok := FindVerb(name, slices.Values(refs))
			if got != want && ok || ok != (want != "") {
				t.Errorf("%q is %q, want %q", name, got, want)
			}
			slices.Reverse(refs)
		}
	}
}

func TestTheNamesOfAWorker(t *testing.T) {
	refs := []string{"mail.send", "print.other", "print.print", "files.shareUpload", "files.pack", "zip.pack"}
	find := func(name string) (string, bool) { return FindVerb(name, slices.Values(refs)) }
	for ref, want := range map[string]string{
		"mail.send": "send mail mail.send", "print.print": "print print.print", "print.other": "other print.other", "files.shareUpload": "shareUpload share-upload files.shareUpload",
		"files.pack": "files.pack", "zip.pack": "zip zip.pack", "client": "client",
	} {
		if got := strings.Join(WorkerNames(ref, find), " "); got != want {
			t.Errorf("%s is %s, want %s", ref, got, want)
		}
	}
}

func TestTheLimitOfAVerb(t *testing.T) {
	for ref, want := range map[string]string{
		"sendmail.sendmail": "sendmail", "mail.sendmail": "sendmail", "sendmail.work": "sendmail", "konnector.service": "service", "client": "client", "shareUpload.run": "share-upload", "files.shareTrack": "share-track",
		"print.print": "", "hooks.webhook": "", "webhook.run": "", "webhook.sendmail": "sendmail", "": "", "@0123": "",
	} {
		if got := LimitName(ref); got != want {
			t.Errorf("jobs of %s count for %q, want %q", ref, got, want)
		}
	}
}
