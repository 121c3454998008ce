package permission

import (
	"crypto/sha256"
	"time"
)

// SecretPrefix begins the secret of every token, so that one is known for what it is where it should not stand.
const SecretPrefix = "car_"

// Hash is what is kept of a token's secret. Secrets are 32 bytes of chance: no salt and no slow hash make them harder to
// guess.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Record is a token as it is kept, without its secret.
type Record struct {
	Token
	Name    string // for people
	Created time.Time
	Revoked time.Time // zero: it is not
	Used    time.Time // to the minute; zero: never
}
