package sendmail

import (
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of addresses.
const (
	maxRecipients = 50
	maxName       = 120 // bytes
	maxAddress    = 254 // bytes, as SMTP has it
	maxLocal      = 64  // bytes before the @
)

// parties are who writes to whom, as the headers show it.
type parties struct {
	from    *mail.Address
	to      []*mail.Address
	replyTo *mail.Address // nil: none
}

// sender is the address of the envelope, to which servers send what they could not deliver.
func (p parties) sender() string { return p.from.Address }

func (p parties) recipients() []string {
	out := make([]string, len(p.to))
	for i, a := range p.to {
		out[i] = a.Address
	}
	return out
}

// addressees are the people whom a message itself names; none but in mode from.
func addressees(m Message) ([]*mail.Address, error) {
	switch m.Mode {
	case fromUser:
		return people(m.To)
	case noreply, support, campaign:
		if len(m.To) > 0 {
			return nil, errors.New("to: only in mode from one may say whom to write to")
		}
		return nil, nil
	}
	return nil, fmt.Errorf("mode: %.40q is none of noreply, from, support, campaign", m.Mode)
}

// between says who writes to whom. The owner never stands as the sender: the service's server may not send in the name
// of the owner's domain.
func between(mode string, to []*mail.Address, s settings) (parties, error) {
	inOwnersName := &mail.Address{Name: s.owner.Name, Address: s.service.Address}
	switch {
	case mode == fromUser:
		return parties{from: inOwnersName, to: to, replyTo: s.owner}, nil
	case mode == support && s.support == nil:
		return parties{}, errors.New("there is no address of the support: set SMTP_SUPPORT_TO")
	case mode == support:
		return parties{from: inOwnersName, to: []*mail.Address{s.support}, replyTo: s.owner}, nil
	}
	return parties{from: s.service, to: []*mail.Address{s.owner}, replyTo: s.replyTo}, nil
}

// people reads the recipients that a message names, each once.
func people(list []Address) ([]*mail.Address, error) {
	if len(list) == 0 || len(list) > maxRecipients {
		return nil, fmt.Errorf("to: %d recipients, 1 to %d are possible", len(list), maxRecipients)
	}
	var out []*mail.Address
	seen := map[string]bool{}
	for i, a := range list {
		if err := checkPerson(a); err != nil {
			return nil, fmt.Errorf("to[%d]: %w", i, err)
		}
		if key := strings.ToLower(a.Email); !seen[key] {
			seen[key] = true
			out = append(out, &mail.Address{Name: a.Name, Address: a.Email})
		}
	}
	return out, nil
}

func checkPerson(a Address) error {
	parsed, err := parseAddress(a.Email)
	if err != nil {
		return fmt.Errorf("email: %w", err)
	}
	if parsed.Name != "" || parsed.Address != a.Email {
		return fmt.Errorf("email: %.80q is more than an address", a.Email)
	}
	return checkName(a.Name)
}

// parseAddress reads one address, with or without a name. It takes no more than SMTP carries as it stands: no quoted
// local parts, no addresses of hosts, no letters beyond ASCII.
func parseAddress(text string) (*mail.Address, error) {
	if len(text) > maxAddress+maxName {
		return nil, fmt.Errorf("%.40q.. is too long", text)
	}
	a, err := mail.ParseAddress(text)
	if err != nil {
		return nil, fmt.Errorf("%.80q is no address: %w", text, err)
	}
	local, host, _ := strings.Cut(a.Address, "@")
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>[]:;@\,"`, r) }
	switch {
	case len(a.Address) > maxAddress || len(local) > maxLocal:
		return nil, fmt.Errorf("%.40q.. is too long", a.Address)
	case strings.IndexFunc(host, func(r rune) bool { return r >= 0x80 }) >= 0:
		return nil, fmt.Errorf("%.80q: write the domain in its ASCII form (xn--..)", a.Address)
	case local == "" || host == "" || strings.ContainsFunc(local, odd) || strings.ContainsFunc(host, odd):
		return nil, fmt.Errorf("%.80q is an address of a kind that is not sent to", a.Address)
	}
	return a, checkName(a.Name)
}

func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("name: %d bytes, at most %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("name: it has control characters or is no UTF-8")
	}
	return nil
}

// domain is what follows the @.
func domain(address string) string {
	_, after, _ := strings.Cut(address, "@")
	return after
}
