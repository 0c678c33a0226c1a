#!/usr/bin/env bash
# Control by the command: policies learned from the recorded episodes, resumed, and acting; what is wrong gets one line.
source "$(dirname "$0")/cli_support.bash"

"$minrnn" --version >version
nowhere=(env MINRNN_DATA=nowhere XDG_CACHE_HOME="$PWD/none")
if grep -qx 'hdf5: no' version; then
    refused 1 'built without HDF5.*bootstrap.sh control' "$minrnn" train rl-hopper-medium --data any.hdf5 --out new
    refused 1 'built without HDF5.*bootstrap.sh control' "${nowhere[@]}" "$minrnn" train rl-hopper-medium --out new
    [ $failures -eq 0 ] || finish
    echo "skipped: without HDF5"; exit 77
fi
refused 1 'minrnn data make d4rl-like hopper medium' "${nowhere[@]}" "$minrnn" train rl-hopper-medium --out new
[ -n "${MINRNN_DATA:-}" ] && [ -e "$MINRNN_DATA/rl/recorded_hopper.hdf5" ] ||
    { echo "skipped: set MINRNN_DATA to the folder that has rl/recorded_hopper.hdf5"; exit 77; }
recorded=$MINRNN_DATA/rl/recorded_hopper.hdf5

# ---- training
small=(rl-hopper-medium --data "$recorded" --dim 32 --layers 2 --dropout 0 --batch 16 --lr 1e-3 --warmup 10
    --eval-every 20 --quiet --device cpu --threads 1)
done_by "$varied" train "${small[@]}" --steps 60 --out whole
done_by "$varied" train "${small[@]}" --steps 31 --out resumed
done_by "$minrnn" train --out resumed --resume --steps 60 --quiet
check "a resumed policy is the whole one" cmp whole/last.safetensors resumed/last.safetensors
check "the last model is the result" cmp whole/last.safetensors whole/model.safetensors
done_by "$minrnn" info whole --json
check "what it reads and predicts" json \
    "d['config']['inputs'] == 18 and d['config']['outputs'] == 3 and d['config']['output'] == 'tanh'" out
done_by "$minrnn" eval whole --device cpu --threads 1 --json
check "it has learned something" json "0 < d['loss'] < 0.4 and d['rows'] > 0 and d['split'] == 'validation'" out
done_by "$minrnn" quantize whole --out small.safetensors
check "its loss is no entropy" grep -q '^squared error: f32 ' out
done_by "$minrnn" train "${small[@]}" --timestep yes --context 7 --steps 5 --out timed
done_by "$minrnn" info timed --json
check "with the time" json "d['config']['inputs'] == 27" out

# ---- data that cannot be used
for pair in "walker2d halfcheetah HalfCheetah" "halfcheetah walker2d Walker2d"; do
    read -r env other title <<<"$pair"
    [ -e "$MINRNN_DATA/rl/policies.h5" ] || continue
    grep -qx 'mujoco: no' version && continue
    done_by "$minrnn" data make d4rl-like $other medium --steps 4000 --out $other.hdf5 --quiet
    refused 1 "its episodes begin as those of $title" "$minrnn" train rl-$env-medium --data $other.hdf5 --out new
done
refused 1 'observations of 11 and actions of 3 numbers; HalfCheetah has 17 and 6' "$minrnn" train \
    rl-halfcheetah-medium --data "$recorded" --out new
head -c 200000 "$recorded" >short.hdf5
refused 1 'short.hdf5' "$minrnn" train rl-hopper-medium --data short.hdf5 --out new
echo text >text.hdf5
refused 1 'text.hdf5' "$minrnn" train rl-hopper-medium --data text.hdf5 --out new
refused 1 'control takes 1 to 1000' "$minrnn" train rl-hopper-medium --data "$recorded" --context 2000 --out new

# ---- D4RL's own file comes first, then the one made here
tiny=(env MINRNN_DATA="$PWD/own-data" XDG_CACHE_HOME="$PWD/cache" "$minrnn" train --dim 8 --layers 1 --batch 2
    --steps 1 --device cpu)
mkdir -p own-data/d4rl cache/minrnn/d4rl-like
for set in medium-replay medium-expert; do
    theirs=own-data/d4rl/hopper_${set/-/_}-v2.hdf5
    echo text >cache/minrnn/d4rl-like/hopper-$set.hdf5
    cp "$recorded" "$theirs"
    done_by "${tiny[@]}" rl-hopper-$set --out theirs-$set
    check "whose data it is" grep -q 'not made by minrnn' err
    rm "$theirs"
    refused 1 "d4rl-like/hopper-$set.hdf5" "${tiny[@]}" rl-hopper-$set --out like
done

# ---- acting
if grep -qx 'mujoco: no' version; then
    refused 1 'built without MuJoCo.*bootstrap.sh control' "$minrnn" rollout whole
    [ $failures -eq 0 ] || finish
    echo "skipped: without MuJoCo"; exit 77
fi
done_by "$minrnn" rollout whole --episodes 3 --device cpu --threads 1 --json
cp out first
check "three episodes" json "len(d['returns']) == 3 and d['env'] == 'hopper' and d['target'] == 3600" out
check "mean and score" json "abs(sum(d['returns']) / 3 - d['return_mean']) < 1e-6 and \
    abs(d['score'] - 100 * (d['return_mean'] + 20.272305) / 3254.572305) < 1e-6" out
done_by "$minrnn" rollout whole --episodes 3 --device cpu --threads 2 --json
check "the same with two threads" python3 -c "
import json
a, b = (json.load(open(name)) for name in ('first', 'out'))
assert a['returns'] == b['returns'] and a['steps'] == b['steps']"
done_by "$minrnn" rollout whole --episodes 3 --seed 2 --device cpu --json
check "another seed" python3 -c "
import json
assert json.load(open('first'))['returns'] != json.load(open('out'))['returns']"
done_by "$minrnn" rollout timed --episodes 1 --target 1000 --strip strip.svg --device cpu
check "a film strip" grep -q '</svg>' strip.svg
done_by "$minrnn" rollout timed --episodes 1 --target 1000 --strip strip.svg --device cpu
echo mine >notes.txt
refused 1 'notes.txt: exists, and is not a film strip' "$minrnn" rollout timed --episodes 1 --strip notes.txt \
    --device cpu
check "it is as it was" [ "$(cat notes.txt)" = mine ]
refused 1 'there are hopper, halfcheetah and walker2d' "$minrnn" rollout whole --env ant
refused 1 'whole is no policy for Walker2d: it was trained for Hopper' "$minrnn" rollout whole --env walker2d
done_by "$minrnn" train selective-copy --length 8 --tokens 2 --steps 2 --eval-batches 1 --dim 8 --layers 1 \
    --out copy --quiet
refused 1 'not trained for control' "$minrnn" rollout copy
refused 1 'no policy for Hopper' "$minrnn" rollout copy --env hopper
refused 1 'nowhere' "$minrnn" rollout whole --assets nowhere

# ---- as the recipe says, unless the command line does
mkdir assets
cp "$MINRNN_DATA/rl/hopper.xml" assets/
done_by "$minrnn" train "${small[@]}" --target 1234 --assets assets --steps 5 --out own
done_by "$minrnn" rollout own --episodes 1 --json
check "its own target" json "d['target'] == 1234" out
done_by "$minrnn" rollout own --episodes 1 --target 77 --json
check "another target" json "d['target'] == 77" out
done_by "$minrnn" eval own
check "what is called its data" grep -q "data: .*recorded_hopper.hdf5, as" err
rm assets/hopper.xml
refused 1 'assets: no file hopper.xml' "$minrnn" rollout own
done_by "$minrnn" rollout own --episodes 1 --assets "$MINRNN_DATA/rl"
finish
