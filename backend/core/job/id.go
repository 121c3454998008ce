package job

import (
	"fmt"
	"strconv"
	"strings"
)

// saltDigits is how many base 36 digits hold 32 bits.
const saltDigits = 7

// IsZero says that this is no job.
func (id ID) IsZero() bool { return id == ID{} }

// String is the public form: "j", the number in base 36, and the salt in seven digits of base 36. Empty for no job.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	salt := strconv.FormatUint(uint64(uint32(id.Salt)), 36)
	return "j" + strconv.FormatInt(id.N, 36) + strings.Repeat("0", saltDigits-len(salt)) + salt
}

// ParseID reads the form that String writes, and no other.
func ParseID(s string) (ID, error) {
	refuse := func() (ID, error) { return ID{}, invalid("id", "%.40q is no job id", s) }
	if len(s) < 2+saltDigits || len(s) > 14+saltDigits || s[0] != 'j' {
		return refuse()
	}
	cut := len(s) - saltDigits
	n, err := strconv.ParseInt(s[1:cut], 36, 64)
	if err != nil || n <= 0 {
		return refuse()
	}
	salt, err := strconv.ParseUint(s[cut:], 36, 32)
	if err != nil {
		return refuse()
	}
	id := ID{N: n, Salt: int32(uint32(salt))}
	if id.String() != s { // signs, capitals, leading zeros
		return refuse()
	}
	return id, nil
}

func invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
