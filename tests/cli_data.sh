#!/usr/bin/env bash
# minrnn data: what there is and where, sums of what has none published, and requests that are wrong. Nothing is
# downloaded.
source "$(dirname "$0")/cli_support.bash"
export MINRNN_DATA=$work/data XDG_CACHE_HOME=$work/cache HOME=$work/home
lra=(listops/basic_{train,val,test}.tsv retrieval/new_aan_pairs.{train,eval,test}.tsv)

# ---- nothing is here
for words in "" list; do
    done_by "$minrnn" data $words
    check "all sets" [ "$(grep -cE '^(shakespeare   |cifar10       |lra           ) [0-9a-z]' out)" -eq 3 ]
    check "none is here" [ "$(grep -cx '               not here yet' out)" -eq 3 ]
done
refused 1 'minrnn data get shakespeare' "$minrnn" data path shakespeare

# ---- some are
mkdir -p data/{listops,retrieval,cifar10} cache/minrnn home/.cache/minrnn
for file in "${lra[@]}"; do echo "$file" >"data/$file"; done
done_by "$minrnn" data list
check "where one is" grep -qx "               $work/data/${lra[0]}" out
check "the others are not" [ "$(grep -c 'not here yet' out)" -eq 2 ]
done_by "$minrnn" data list --json
check "the list in JSON" json "[(s['name'], s['bytes'], s['path']) for s in d] == [('shakespeare', 1115394, None),
    ('cifar10', None, None), ('lra', None, '$work/data/${lra[0]}')]" out
check "sums and sources" json "[len(s['sha256'] or '') for s in d] == [64, 0, 0] and
    all(s['url'].startswith('https://') for s in d)" out
done_by "$minrnn" data path lra
check "a path" [ "$(cat out)" = "$work/data/${lra[0]}" ]
check "and no more" [ ! -s err ]

# ---- what is here is not fetched; files without a published sum get theirs printed
done_by "$minrnn" data get lra
check "its path" [ "$(cat out)" = "$work/data/${lra[0]}" ]
for file in "${lra[@]}"; do
    check "the sum of $file" grep -qxF \
        "SHA-256 $(sum_of "data/$file")  $work/data/$file (computed here; none is published)" err
done
check "a line each" [ "$(wc -l <err)" -eq 6 ]
done_by "$minrnn" data get lra --quiet
check "quiet" [ ! -s err -a "$(cat out)" = "$work/data/${lra[0]}" ]
echo made from the pictures >data/cifar10/gray.bin
done_by "$minrnn" data get cifar10
check "a file that serves for all" [ "$(cat out)" = "$work/data/cifar10/gray.bin" -a ! -s err ]
rm "data/${lra[1]}" && mkdir "data/${lra[1]}"
run "$minrnn" data get lra
check "a folder is not a file" [ $status -eq 1 -a ! -s out ]
check "it ends there" [ "$(grep -c '^SHA-256' err)" -eq 1 ]
check "and a line says so" grep -q "^minrnn data: .*${lra[1]}" err

# ---- the cache folder
echo short >cache/minrnn/tinyshakespeare.txt
echo short >home/.cache/minrnn/tinyshakespeare.txt
done_by "$minrnn" data path shakespeare
check "in XDG_CACHE_HOME" [ "$(cat out)" = "$work/cache/minrnn/tinyshakespeare.txt" ]
for xdg in "" cache; do # the XDG specification: a relative path is ignored
    done_by env XDG_CACHE_HOME="$xdg" "$minrnn" data path shakespeare
    check "in the home folder" [ "$(cat out)" = "$work/home/.cache/minrnn/tinyshakespeare.txt" ]
done
refused 1 'minrnn data get shakespeare' env -u HOME -u XDG_CACHE_HOME "$minrnn" data path shakespeare
cp cache/minrnn/tinyshakespeare.txt data/
refused 1 'tinyshakespeare.txt is not the published shakespeare: it has 6 bytes, not 1115394' \
    "$minrnn" data get shakespeare

# ---- what is asked wrongly
for words in "get" "path" "list lra" "lra" "remove lra"; do
    refused 2 'give list, get NAME or path NAME' "$minrnn" data $words
done
refused 2 'shakespeare' "$minrnn" data get shakspeare
refused 2 'lra' "$minrnn" data path lar

finish
