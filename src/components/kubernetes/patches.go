package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// mostElements is how many elements the lists of a strategic merge patch can have together.
	mostElements = 2000
	// largestPatch is what the API server reads of one (MaxRequestBodyBytes in pkg/server/config.go of
	// k8s.io/apiserver).
	largestPatch = 3 << 20
)

// limitPatches refuses strategic merge patches with endless lists.
//
// The API server compares each two elements of such a list, and more than once (mergeSlice in
// pkg/util/strategicpatch/patch.go of k8s.io/apimachinery), before it asks any policy: a list of 16,000 in a patch of
// 192 kB took 5 s, and time grows with the square. It goes on when the request has timed out.
func limitPatches(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		if r.Method != http.MethodPatch || kind != string(types.StrategicMergePatchType) {
			next.ServeHTTP(w, r)
			return
		}
		patch, err := io.ReadAll(io.LimitReader(r.Body, largestPatch+1)) // more is refused
		if err != nil {
			refuse(w, apierrors.NewBadRequest(fmt.Sprintf("cannot read the patch: %v", err)))
			return
		}
		if n := elements(patch); n > mostElements {
			refuse(w, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"lists of a strategic merge patch can have %d elements together, and these have %d: use a merge patch "+
					"(%s) or server-side apply", mostElements, n, types.MergePatchType,
			)))
			return
		}
		body := r.Body
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(patch), body), body}
		next.ServeHTTP(w, r)
	})
}

// elements returns how many elements the lists of a document have together. It has to be right for valid JSON only: the
// API server refuses any other.
func elements(document []byte) int {
	count, lists := 0, []bool{false} // whether what is open is a list
	inText, empty := false, false
	for i := 0; i < len(document); i++ {
		c := document[i]
		if inText {
			switch c {
			case '\\':
				i++
			case '"':
				inText = false
			}
			continue
		}
		if empty && !bytes.ContainsRune([]byte(" \t\r\n]"), rune(c)) {
			count++ // the first of a list
		}
		empty = empty && bytes.ContainsRune([]byte(" \t\r\n"), rune(c))
		switch c {
		case '"':
			inText = true
		case '[', '{':
			lists = append(lists, c == '[')
			empty = c == '['
		case ']', '}':
			if len(lists) > 1 {
				lists = lists[:len(lists)-1]
			}
		case ',':
			if lists[len(lists)-1] {
				count++
			}
		}
	}
	return count
}

// refuse answers as the API server does.
func refuse(w http.ResponseWriter, refusal *apierrors.StatusError) {
	status := refusal.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
