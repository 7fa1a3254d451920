package chaos

import (
	"encoding/binary"
	"io"
	"strings"
)

// wire is what a [Proxy] knows of a protocol: how the messages of a client are cut,
// and which of them are statements.
type wire struct {
	header    int // bytes in front of each message
	length    func(header []byte) int
	statement func(header, body []byte) (sql string, ok bool)
	// startup forwards what a client sends before messages have headers.
	startup func(client io.Reader, server io.Writer) error
}

func wireOf(source Source) wire {
	if source.IsMariaDB() {
		return wire{header: 4, length: mariaLength, statement: mariaStatement, startup: func(io.Reader, io.Writer) error { return nil }}
	}
	return wire{header: 5, length: pgLength, statement: pgStatement, startup: pgStartup}
}

func pgLength(header []byte) int { return int(binary.BigEndian.Uint32(header[1:])) - 4 }

// pgStatement knows Query and Parse.
func pgStatement(header, body []byte) (string, bool) {
	switch header[0] {
	case 'Q':
		return strings.TrimRight(string(body), "\x00"), true
	case 'P':
		if _, rest, ok := strings.Cut(string(body), "\x00"); ok {
			sql, _, _ := strings.Cut(rest, "\x00")
			return sql, true
		}
	}
	return "", false
}

// pgStartup forwards the first message, which has no type, and whatever precedes it.
func pgStartup(client io.Reader, server io.Writer) error {
	for {
		header := make([]byte, 8)
		if _, err := io.ReadFull(client, header); err != nil {
			return err
		}
		body := make([]byte, int(binary.BigEndian.Uint32(header))-8)
		if _, err := io.ReadFull(client, body); err != nil {
			return err
		}
		if _, err := server.Write(append(header, body...)); err != nil {
			return err
		}
		if len(body) > 0 { // else a request for encryption, which the server answers first
			return nil
		}
	}
}

// mariaLength is that of a packet; its number follows.
func mariaLength(header []byte) int {
	return int(header[0]) | int(header[1])<<8 | int(header[2])<<16
}

// mariaStatement knows queries and statements to be prepared. Packets of what is too
// long for one are numbered on.
func mariaStatement(header, body []byte) (string, bool) {
	const query, prepare = 0x03, 0x16
	if header[3] == 0 && len(body) > 0 && (body[0] == query || body[0] == prepare) {
		return string(body[1:]), true
	}
	return "", false
}
