#!/usr/bin/env bash
# The table of control: a policy is scored as `minrnn rollout` scores it, data that is like D4RL's is called so wherever
# a number stands, and what a policy acts in is looked for before the training.
source "$(dirname "$0")/cli_support.bash"
export XDG_CACHE_HOME=$work/cache

"$minrnn" --version >version
cat >own.ini <<'INI'
[experiment]
summary = Ours
score = return
[ours]
dim = 16
layers = 1
batch = 8
steps = 30
warmup = 5
eval-every = 30
episodes = 4
target = 500
play-seed = 7
[column Recorded]
recipe = rl-hopper-medium
[row minGRU]
mixer = mingru
INI
recorded=${MINRNN_DATA:-}/rl/recorded_hopper.hdf5
sed -i "s|^recipe = .*|&\ndata = $recorded|" own.ini
if grep -qxE '(hdf5|mujoco): no' version; then
    if grep -qx 'hdf5: no' version || [ -e "$recorded" ]; then
        refused 1 'built without (HDF5|MuJoCo).*bootstrap.sh control' "$minrnn" reproduce own.ini --quiet --out none
        check "before the training" [ -z "$(find none -name '*.safetensors' 2>/dev/null)" ]
        [ $failures -eq 0 ] || finish
    fi
    echo "skipped: without HDF5 or MuJoCo"; exit 77
fi
[ -e "$recorded" ] && [ -e "$MINRNN_DATA/rl/policies.h5" ] ||
    { echo "skipped: set MINRNN_DATA to the folder that has rl/policies.h5 and rl/recorded_hopper.hdf5"; exit 77; }

# ---- a row, and the model that it is of
run=("$minrnn" reproduce own.ini --device cpu --threads 1 --keep)
refused 1 'hopper.xml.* is not on this machine' env MINRNN_DATA=nowhere HOME=nowhere VIRTUAL_ENV= CONDA_PREFIX= \
    "${run[@]}" --quiet --out own
check "before the training" [ -z "$(find own -name '*.safetensors' 2>/dev/null)" ]
done_by "${run[@]}" --out own
check "not D4RL-like" [ "$(grep -c D4RL-like own/own.md out err | grep -vc ':0')" -eq 0 ]
done_by "$minrnn" rollout own/runs/*/minGRU-Recorded-1-* --episodes 4 --target 500 --seed 7 --device cpu --json
cat >same.py <<'PYTHON'
import json
row, told = json.load(open("own/own.json"))["rows"][0], json.load(open("out"))
assert abs(row["return_mean"] - told["return_mean"]) < 1e-6 and abs(row["return_std"] - told["return_std"]) < 1e-6
assert abs(row["score"] - told["score"]) < 1e-6 and row["data_made"] == 0
assert 114 < row["data_score"] < 116, row["data_score"]  # the mean return of both recorded episodes
PYTHON
check "the score of a row is that of a rollout" python3 same.py
check "the score of its data" grep -qE '\| data \| ours .*' own/own.md
done_by "$minrnn" rollout own/runs/*/minGRU-Recorded-1-* --episodes 4 --seed 8 --device cpu --json
check "its recipe has the target, the command the seed" json "d['target'] == 500 and d['seed'] == 8" out

# ---- data that is like D4RL's
for set in medium medium-replay medium-expert; do
    done_by "$minrnn" data make d4rl-like hopper $set --steps 3000 --quiet
done
done_by "$minrnn" reproduce control --only 'minGRU/Hopper-M*' --steps 2 --device cpu --out like
check "on the terminal" [ "$(grep -c 'D4RL-like data, 1 seed' out)" -eq 3 ]
row='^\| minGRU \| Hopper-M\S* \| [0-9.± ]+ \| D4RL-like: [0-9.]+ \| '
check "in the table" [ "$(grep -cE "$row" like/control.md)" -eq 3 ]
check "in the charts" [ "$(grep -l 'D4RL-like data' like/*.svg | wc -l)" -eq 4 ]
check "no number of the paper beside it" python3 - <<'PYTHON'
import re
assert not re.search(r'class="[^"]*\bpaper\b', open("like/control.svg").read())
PYTHON
finish
