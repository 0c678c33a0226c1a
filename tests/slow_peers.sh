#!/usr/bin/env bash
# bench --peers: another program's rows beside ours. The peer here is a script that only says numbers.
source "$(dirname "$0")/cli_support.bash"

cat >peer.py <<'PYTHON'
import json, sys
print(json.dumps({"bench": "machine", "torch": "9.9"}))
print(json.dumps({"bench": "decode", "peer": "made up", "B": 1, "us": 3e6, "words": sys.argv[1:]}))
print(json.dumps({"bench": "decode", "peer": "of another size", "B": 77, "us": 5}))
print(json.dumps({"bench": "decode", "peer": "broken", "B": 2, "error": "out of luck"}))
open("words", "w").write(" ".join(sys.argv[1:]))
PYTHON

export MINRNN_PEERS=peer.py
done_by "$minrnn" bench decode --mixer mingru --peers --json --device cpu --threads 1
check "the script was told what to measure" grep -qx -- '--device cpu --threads 1 T=512 decode' words
# a ratio has four digits
check "the ratio to our row" json \
    "[abs(p['ratio'] * p['our_ms'] / 3000 - 1) < 1e-3 for p in d if p.get('peer') == 'made up'] == [True]" out
check "our row is the right one" json \
    "[p['ours'] for p in d if p.get('peer') == 'made up'] == ['text no conv d=384 f32 B=1']" out
check "no ratio to what we do not have" json \
    "['ratio' in p for p in d if p.get('peer') == 'of another size'] == [False]" out
check "each row has tokens" json "all(p['tokens_per_s'] > 0 for p in d if p['bench'] == 'decode' and 'name' in p)" out
check "1, 2, 4 and 8 streams in both forms, and without convolution" json \
    "len([p for p in d if p['bench'] == 'decode' and 'name' in p]) == 12" out
check "the limit says where the weights lie" json \
    "all(p['limit'] in ('L2', 'L3', 'memory', 'compute') and p['share'] > 0 for p in d if p['bench'] == 'decode' \
        and 'name' in p)" out

done_by "$minrnn" bench decode --mixer mingru --peers --device cpu --threads 1
check "for people" grep -qE '^decode +made up +B=1 +3000\.000 .*x$' out
check "what failed says so" grep -qE 'broken .*failed: out of luck$' out

refused 2 'leave --quick out' "$minrnn" bench decode --mixer mingru --peers --quick
echo 'raise SystemExit(1)' >peer.py
refused 1 'is PyTorch installed' "$minrnn" bench decode --mixer mingru --peers --device cpu --threads 1
refused 1 'MINRNN_PEERS names, cannot be read' env MINRNN_PEERS=gone.py "$minrnn" bench --peers
refused 1 'set MINRNN_PEERS' env -u MINRNN_PEERS "$minrnn" bench --peers

finish
