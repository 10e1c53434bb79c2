// Package spell owns the guess at what a mistyped word was meant to be.
package spell

import "strings"

// Nearest picks the candidate with the smallest edit distance to word, or ""
// when none is near enough to be what was meant. Letter case does not count.
func Nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	if len(word) > 64 { // the distance is quadratic, and nobody mistypes 64 letters into a key
		return ""
	}
	best, bestDist := "", len(word)/3+2
	for _, c := range candidates {
		if d := Distance([]byte(word), []byte(strings.ToLower(c))); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// Distance counts insertions, deletions, replacements and swaps of
// neighbours, the usual slips of typing.
func Distance[E comparable](a, b []E) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
