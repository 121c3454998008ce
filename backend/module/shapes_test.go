package module

// Structs of all the kinds that encoding/json has rules for. TestShapesAreThoseOfEncodingJSON type checks this file, so
// it imports nothing.

type shapeBase struct {
	ID     int `json:"id"`
	Shared string
	Clash  bool
	Tagged int `json:"clashTagged"`
}

type shapeOther struct {
	Clash       bool
	ClashTagged int `json:"clashTagged"`
	ID          string
	Pick        bool
}

type shapeDeep struct{ shapeBase }

type ShapePointed struct {
	Far  *string
	Near string `json:"near,omitempty"`
	X    int    `json:"Pick"`
}

type ShapeText string

type shapeNumber int

type shapeBytes []byte

type shapeTree []shapeTree

type shapeAlias = shapeBase

type shapeGeneric[T any] struct {
	Value T   `json:"value"`
	More  []T `json:"more,omitempty"`
}

type shapeAll struct {
	shapeDeep
	*ShapePointed
	shapeOther
	ShapeText
	shapeNumber
	Shared    string `json:"Shared,omitempty"`
	Strings   []string
	Array     [2]float32
	Bytes     []byte `json:"bytes"`
	Named     shapeBytes
	ByteArray [3]byte
	Map       map[string]*int
	ByKey     map[ShapeText]bool
	Any       any
	Pointer   **int
	Quoted    int64  `json:",string"`
	QuotedTo  *uint8 `json:"quotedTo,string"`
	Unquoted  []int  `json:"unquoted,string"`
	Dash      int    `json:"-,"`
	Odd       int    `json:"odd name.$%"`
	Comma     int    `json:"a,b"`
	Bad       int    `json:"quo\"te"`
	Skipped   func() `json:"-"`
	hidden    chan int
	Small     int8
	Huge      uint64
	Float     float64 `json:"float,omitzero"`
	Tree      shapeTree
	Inline    struct{ X *struct{ Y int } }
	Next      *shapeAll `json:"next,omitempty"`
	List      []shapeAll
	Alias     shapeAlias
	Generic   shapeGeneric[shapeGeneric[int]]
	Empty     struct{}
	Rune      rune
}
