package sendmail

import (
	"bufio"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"os"
	"strconv"
	"strings"

	"carillon"
)

// Bounds of what settings name, in bytes.
const (
	maxSecret = 4 << 10
	maxCAs    = 1 << 20
	maxOwners = 16 << 20
)

// settings are what one run needs of the environment.
type settings struct {
	server  server
	service *mail.Address // writes in its own name
	replyTo *mail.Address // nil: nobody
	support *mail.Address // nil: there is none
	owner   *mail.Address // of the tenant
}

// settle reads the settings for a mode and a tenant. Those that are wrong fail for good; a file that cannot be read may
// be there the next time.
func settle(mode, tenant string, env func(string) string) (s settings, err error) {
	if s.server, err = serverOf(mode, env); err != nil {
		return s, err
	}
	service, replyTo := "SMTP_FROM", "SMTP_REPLY_TO"
	if mode == campaign && env("CAMPAIGN_FROM") != "" {
		service = "CAMPAIGN_FROM"
	}
	if mode == campaign && env("CAMPAIGN_REPLY_TO") != "" {
		replyTo = "CAMPAIGN_REPLY_TO"
	}
	if s.service, err = setAddress(service, cmp.Or(env(service), "noreply@localhost")); err != nil {
		return s, err
	}
	if s.replyTo, err = setAddress(replyTo, env(replyTo)); err != nil {
		return s, err
	}
	if s.support, err = setAddress("SMTP_SUPPORT_TO", cmp.Or(env("SMTP_SUPPORT_TO"), env("SMTP_REPLY_TO"))); err != nil {
		return s, err
	}
	s.owner, err = ownerOf(tenant, env)
	return s, err
}

// setAddress reads the address of a setting; nil if there is none.
func setAddress(name, text string) (*mail.Address, error) {
	if text == "" {
		return nil, nil
	}
	a, err := parseAddress(text)
	if err != nil {
		return nil, carillon.Fail(fmt.Errorf("%s: %w", name, err))
	}
	return a, nil
}

// serverOf is the server of a mode: campaigns have their own one, with all that belongs to it, or none.
func serverOf(mode string, env func(string) string) (server, error) {
	prefix := "SMTP_"
	if mode == campaign && env("CAMPAIGN_HOST") != "" {
		prefix = "CAMPAIGN_"
	}
	get := func(name string) string { return env(prefix + name) }
	wrong := func(name string, err error) error { return carillon.Fail(fmt.Errorf("%s%s: %w", prefix, name, err)) }

	s := server{host: cmp.Or(get("HOST"), "127.0.0.1"), user: get("USER"), helo: cmp.Or(get("HELO"), "localhost")}
	s.security = security(get("SECURITY"))
	if s.security == "" {
		s.security = startTLS
		if ip := net.ParseIP(s.host); s.host == "localhost" || ip != nil && ip.IsLoopback() {
			s.security = noTLS
		}
	}
	usual, known := map[security]int{startTLS: 587, wholeTLS: 465, noTLS: 25}[s.security]
	if !known {
		return s, wrong("SECURITY", fmt.Errorf("%.40q is none of starttls, tls, none", string(s.security)))
	}
	s.port = usual
	if text := get("PORT"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return s, wrong("PORT", fmt.Errorf("%.40q is no port", text))
		}
		s.port = int(port)
	}
	if strings.ContainsFunc(s.helo, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return s, wrong("HELO", fmt.Errorf("%.80q is no name of a host", s.helo))
	}
	if file := get("CA_FILE"); file != "" {
		pem, err := readAll(file, maxCAs)
		if err != nil {
			return s, fmt.Errorf("%sCA_FILE: %w", prefix, err)
		}
		if s.roots = x509.NewCertPool(); !s.roots.AppendCertsFromPEM(pem) {
			return s, wrong("CA_FILE", fmt.Errorf("%s holds no certificate", file))
		}
	}
	if s.user == "" {
		return s, nil
	}
	if s.security == noTLS {
		return s, wrong("USER", errors.New("a password is never sent without TLS: set "+prefix+"SECURITY to starttls or tls"))
	}
	if get("PASSWORD_FILE") == "" {
		return s, wrong("USER", errors.New("it needs "+prefix+"PASSWORD_FILE"))
	}
	secret, err := readAll(get("PASSWORD_FILE"), maxSecret)
	if err != nil {
		return s, fmt.Errorf("%sPASSWORD_FILE: %w", prefix, err)
	}
	if s.password = strings.TrimRight(string(secret), "\r\n"); s.password == "" || strings.Contains(s.user+s.password, "\x00") {
		return s, wrong("PASSWORD_FILE", errors.New("it holds no password"))
	}
	return s, nil
}

// ownerOf finds who owns a tenant.
func ownerOf(tenant string, env func(string) string) (*mail.Address, error) {
	if file := env("SMTP_OWNERS_FILE"); file != "" {
		text, err := findOwner(file, tenant)
		if err != nil {
			return nil, fmt.Errorf("SMTP_OWNERS_FILE: %w", err)
		}
		if text != "" {
			return setAddress("SMTP_OWNERS_FILE: tenant "+tenant, text)
		}
	}
	if text := env("SMTP_OWNER"); text != "" {
		return setAddress("SMTP_OWNER", strings.ReplaceAll(text, "{tenant}", tenant))
	}
	return nil, carillon.Fail(fmt.Errorf("no address is known of the owner of tenant %.80q: write it into SMTP_OWNERS_FILE or set SMTP_OWNER", tenant))
}

// findOwner looks for the line of a tenant; empty if there is none. Blank lines and those that begin with # say nothing.
func findOwner(file, tenant string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxOwners)); ; {
		if !lines.Scan() {
			return "", lines.Err()
		}
		line := strings.TrimSpace(lines.Text())
		end := strings.IndexAny(line, " \t")
		if end > 0 && line[:end] == tenant {
			return strings.TrimSpace(line[end:]), nil
		}
	}
}

// readAll reads a file that has at most limit bytes.
func readAll(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", file, limit)
	}
	return text, err
}
