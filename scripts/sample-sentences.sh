#!/usr/bin/env bash
# Prints a random sample of the sentences in README.md and the guides, to be judged by a reader: would an editor change it,
# must it be read twice? Cells of tables count as sentences, code and headings do not, and neither do generated pages.
#
#   scripts/sample-sentences.sh [-n 150] [-s seed] [page ...]
#
# The first line has the seed: the same seed and pages give the same sample.
set -euo pipefail

count=150
seed=$RANDOM$RANDOM
while getopts n:s: option; do
	case $option in
	n) count=$OPTARG ;;
	s) seed=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ]; then
	cd "$(dirname "${BASH_SOURCE[0]}")/.."
	set -- README.md $(find docs -name '*.md' -not -path 'docs/adr/*' -not -path 'docs/reference/*' -not -path 'docs/contributing/*' -not -name promises.md | sort)
fi

LC_ALL=C awk -v count="$count" -v seed="$seed" '
	# keep splits a paragraph, item or cell into sentences.
	function keep(text, end) {
		gsub(/<!--[^>]*-->|<a id="[^"]*"><\/a>/, "", text)
		gsub(/[ \t]+/, " ", text)
		gsub(/^ | $/, "", text)
		while (match(text, /[.!?][)*`"]* [A-Z`(\[*0-9]/)) {
			end = RSTART + RLENGTH - 2
			add(substr(text, 1, end - 1))
			text = substr(text, end + 1)
		}
		add(text)
	}
	function add(sentence) {
		if (split(sentence, words, " ") > 2) all[++n] = page ": " sentence
	}
	function flush() {
		keep(paragraph)
		paragraph = ""
	}
	FNR == 1 { flush(); page = FILENAME; code = 0 }
	/^ *```/ { flush(); code = !code; next }
	code { next }
	/^#/ || /^ *$/ || /^<!--/ { flush(); next }
	/^\|/ {
		flush()
		if ($0 ~ /^[|: -]+$/) next
		cells = split($0, cell, /\|/)
		for (i = 1; i <= cells; i++) keep(cell[i])
		next
	}
	/^ *([-*]|[0-9][0-9]?\.) / { flush(); sub(/^ *([-*]|[0-9][0-9]?\.) /, "") }
	/^> / { sub(/^> /, "") }
	{ paragraph = paragraph " " $0 }
	END {
		flush()
		srand(seed)
		if (count > n) count = n
		printf "seed %s: %d of %d sentences\n", seed, count, n
		for (i = 1; i <= count; i++) { # the first of a shuffle
			j = i + int(rand() * (n - i + 1))
			chosen = all[j]
			all[j] = all[i]
			print chosen
		}
	}
' "$@"
