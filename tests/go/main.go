// A reader of the ledger's evidence that shares no line with dpserve: Go's own code for signed notes and tiled logs
// (golang.org/x/mod/sumdb/note and tlog), which Go's checksum database rests on.
//
//	check checkpoint  VKEY NOTE             the log's signature
//	check cosigned    VKEY WITNESS NOTE     the log's signature and a witness's (cosignature/v1)
//	check proof       VKEY PROOF            a .tlog-proof: the entry in it is in the tree
//	check consistency VKEY OLD NEW JSON     the tree of the note OLD is the beginning of that of NEW
//	check tiles       VKEY FOLDER           every entry and every tile of an export, by proofs made from the tiles
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type command struct {
	arguments int
	run       func(a []string) error
}

var commands = map[string]command{
	"checkpoint":  {2, func(a []string) error { _, err := readCheckpoint(a[0], read(a[1])); return err }},
	"cosigned":    {3, cosigned},
	"proof":       {2, proof},
	"consistency": {4, consistency},
	"tiles":       {2, tiles},
}

func main() {
	if len(os.Args) < 2 || len(os.Args)-2 != commands[os.Args[1]].arguments {
		fail(fmt.Errorf("usage: see main.go"))
	}
	if err := commands[os.Args[1]].run(os.Args[2:]); err != nil {
		fail(err)
	}
	fmt.Println("verified")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func read(path string) []byte {
	raw, err := os.ReadFile(path)
	if err != nil {
		fail(err)
	}
	return raw
}

// readCheckpoint gives the tree of a note, once the log's key signed it for the log of that name.
func readCheckpoint(vkey string, raw []byte, more ...note.Verifier) (tlog.Tree, error) {
	var tree tlog.Tree
	log, err := note.NewVerifier(vkey)
	if err != nil {
		return tree, err
	}
	opened, err := note.Open(raw, note.VerifierList(append(more, log)...))
	if err != nil {
		return tree, err
	}
	if len(opened.Sigs) != 1+len(more) {
		return tree, fmt.Errorf("checkpoint: %d of %d signatures", len(opened.Sigs), 1+len(more))
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != log.Name() {
		return tree, fmt.Errorf("checkpoint: not of the log %s", log.Name())
	}
	if tree.N, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
		return tree, err
	}
	tree.Hash, err = tlog.ParseHash(lines[2])
	return tree, err
}

// cosigner verifies c2sp.org/tlog-cosignature lines of type 0x04.
type cosigner struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

func (c cosigner) Name() string    { return c.name }
func (c cosigner) KeyHash() uint32 { return c.hash }
func (c cosigner) Verify(text, signature []byte) bool {
	if len(signature) != 8+ed25519.SignatureSize {
		return false
	}
	time := binary.BigEndian.Uint64(signature)
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s", time, text)
	return ed25519.Verify(c.key, []byte(message), signature[8:])
}

func newCosigner(vkey string) (note.Verifier, error) {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("witness: not a verifier key")
	}
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(raw) != 33 || raw[0] != 4 {
		return nil, fmt.Errorf("witness: not a key of type 4")
	}
	digest := sha256.Sum256([]byte(parts[0] + "\n" + string(raw)))
	if fmt.Sprintf("%x", digest[:4]) != parts[1] {
		return nil, fmt.Errorf("witness: not the key's id")
	}
	return cosigner{parts[0], binary.BigEndian.Uint32(digest[:4]), raw[1:]}, nil
}

func cosigned(a []string) error {
	witness, err := newCosigner(a[1])
	if err != nil {
		return err
	}
	_, err = readCheckpoint(a[0], read(a[2]), witness)
	return err
}

func proof(a []string) error {
	head, checkpoint, _ := bytes.Cut(read(a[1]), []byte("\n\n"))
	tree, err := readCheckpoint(a[0], checkpoint)
	if err != nil {
		return err
	}
	lines := strings.Split(string(head), "\n")
	if len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return fmt.Errorf("proof: not of this form")
	}
	entry, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	if err != nil {
		return err
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil {
		return err
	}
	path, err := hashes(lines[3:])
	if err != nil {
		return err
	}
	return tlog.CheckRecord(path, tree.N, tree.Hash, index, tlog.RecordHash(entry))
}

func hashes(lines []string) ([]tlog.Hash, error) {
	var found []tlog.Hash
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, err
		}
		found = append(found, hash)
	}
	return found, nil
}

func consistency(a []string) error {
	older, err := readCheckpoint(a[0], read(a[1]))
	if err != nil {
		return err
	}
	newer, err := readCheckpoint(a[0], read(a[2]))
	if err != nil {
		return err
	}
	var said struct {
		From, To int64
		Hashes   []string
	}
	if err := json.Unmarshal(read(a[3]), &said); err != nil {
		return err
	}
	if said.From != older.N || said.To != newer.N {
		return fmt.Errorf("consistency: between other sizes")
	}
	path, err := hashes(said.Hashes)
	if err != nil {
		return err
	}
	return tlog.CheckTree(path, newer.N, newer.Hash, older.N, older.Hash)
}

// folder reads tiles of height 8 as c2sp.org/tlog-tiles lays them out: tlog's own path without the height.
type folder string

func (f folder) Height() int                        { return 8 }
func (f folder) SaveTiles(_ []tlog.Tile, _ [][]byte) {}
func (f folder) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range wanted {
		raw, err := os.ReadFile(f.path(tile))
		if err != nil {
			return nil, err
		}
		found = append(found, raw)
	}
	return found, nil
}

func (f folder) path(tile tlog.Tile) string {
	path := strings.TrimPrefix(tile.Path(), "tile/8/")
	return filepath.Join(string(f), "tile", strings.Replace(path, "data/", "entries/", 1))
}

func tiles(a []string) error {
	from := folder(a[1])
	tree, err := readCheckpoint(a[0], read(filepath.Join(a[1], "checkpoint")))
	if err != nil {
		return err
	}
	reader := tlog.TileHashReader(tree, from)
	if root, err := tlog.TreeHash(tree.N, reader); err != nil || root != tree.Hash {
		return fmt.Errorf("tiles: another root (%v)", err)
	}
	for _, tile := range tlog.NewTiles(8, 0, tree.N) { // the reader verifies each against the root
		if _, err := tlog.ReadTileData(tile, reader); err != nil {
			return err
		}
		if tile.L == 0 {
			if err := entries(from, tile, tree, reader); err != nil {
				return err
			}
		}
	}
	return prefixes(tree, reader)
}

func entries(from folder, tile tlog.Tile, tree tlog.Tree, reader tlog.HashReader) error {
	tile.L = -1 // tlog's level of the records themselves
	raw := read(from.path(tile))
	for n := tile.N * 256; n < tile.N*256+int64(tile.W); n++ {
		if len(raw) < 2 || len(raw) < 2+int(binary.BigEndian.Uint16(raw)) {
			return fmt.Errorf("entry %d: cut short", n)
		}
		end := 2 + int(binary.BigEndian.Uint16(raw))
		path, err := tlog.ProveRecord(tree.N, n, reader)
		if err != nil {
			return err
		}
		if err := tlog.CheckRecord(path, tree.N, tree.Hash, n, tlog.RecordHash(raw[2:end])); err != nil {
			return fmt.Errorf("entry %d: %w", n, err)
		}
		raw = raw[end:]
	}
	if len(raw) != 0 {
		return fmt.Errorf("entry %d: more than there is", tile.N*256+int64(tile.W))
	}
	return nil
}

// prefixes proves from the tiles that the tree began with smaller ones.
func prefixes(tree tlog.Tree, reader tlog.HashReader) error {
	for n := int64(1); n < tree.N; n += 1 + tree.N/40 {
		root, err := tlog.TreeHash(n, reader)
		if err != nil {
			return err
		}
		path, err := tlog.ProveTree(tree.N, n, reader)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(path, tree.N, tree.Hash, n, root); err != nil {
			return err
		}
	}
	return nil
}
