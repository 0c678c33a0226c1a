#!/usr/bin/env bash
# An installed tree is enough for a third-party program: by pkg-config and by CMake, with the shared
# library and the static one.
source "$(dirname "$0")/cli_support.bash"
built=$(dirname "$minrnn")
[ "$sanitized" = 0 ] || { echo "skipped: a third-party program is not sanitized"; exit 77; }
[ -e "$built/cmake_install.cmake" ] || { echo "skipped: not a build folder"; exit 77; }

done_by cmake --install "$built" --prefix "$PWD/first" --strip # as `make install`
mv first tree # it may be moved
lib=$(dirname "$(find "$PWD/tree" -name libminrnn.a)")

cat >foreign.c <<'C'
#include <minrnn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    mr_error err;
    mr_context *ctx;
    mr_net *net;
    mr_stream *stream;
    float scores[256];
    if (argc != 2 || mr_context_new(NULL, &ctx, &err) || mr_net_open(ctx, argv[1], &net, &err) ||
        mr_stream_new(net, &stream, &err))
        return puts(argc == 2 ? err.text : "which model?"), 1;
    for (int token, i = 0; i < 20; i++, putchar(token)) {
        if (mr_stream_step(stream, i ? token : 'a', scores, 256, &err)) return puts(err.text), 1;
        token = 0;
        for (int k = 1; k < mr_net_outputs(net); k++)
            if (scores[k] > scores[token]) token = k;
    }
    mr_stream_free(stream), mr_net_free(net), mr_context_free(ctx);
}
C
python3 -c 'print("abcdefghijklmnopqrstuvwxyz" * 200, end="")' >text.txt
done_by "$built/example_train" text.txt model.safetensors
printf 'bcdefghijklmnopqrstu' >expected

check "the command is stripped" bash -c "! readelf -S tree/bin/minrnn | grep -q '\.symtab'"
export PKG_CONFIG_PATH=$lib/pkgconfig
cc=${CC:-cc}
check "the package has its version" [ "$(pkg-config --modversion minrnn)" = \
    "$("$minrnn" --version | head -1 | cut -d' ' -f2)" ]
if [ -e "$lib/libminrnn.so" ]; then
    done_by $cc foreign.c -o shared $(pkg-config --cflags --libs minrnn) -Wl,-rpath,"$lib"
    done_by ./shared model.safetensors
    check "with the shared library it streams: $(cat out)" same_files out expected
    check "the shared library needs libc, libm and the loader" bash -c \
        "! readelf -d '$lib/libminrnn.so' | grep NEEDED | grep -vE 'lib(c|m|dl|rt|pthread)\\.so|ld-linux'"
    check "the shared library is named by its soname" bash -c "readelf -d shared | grep -q 'libminrnn\.so\.0'"
    check "only the headers' functions can be seen" python3 - "$lib/libminrnn.so" "$PWD/tree/include/minrnn.h" \
        "$PWD/tree/include/minrnn_experimental.h" <<'PYTHON'
import re, subprocess, sys
seen = {line.split()[-1]
        for line in subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], check=True, capture_output=True,
                                   text=True).stdout.splitlines()}
text = "".join(open(path, encoding="utf-8").read() for path in sys.argv[2:])
said = set(re.findall(r"MR_API [^;]*?(\bmr_\w+)\(", text))
print("seen only:", seen - said, "said only:", said - seen) if seen != said else None
sys.exit(seen != said or len(said) < 40)
PYTHON
fi
mkdir alone && cp "$lib/libminrnn.a" alone
done_by $cc foreign.c -o static $(pkg-config --cflags minrnn) -Lalone \
    $(pkg-config --static --libs minrnn | sed "s|-L$lib ||; s|-lminrnn|-l:libminrnn.a|")
done_by ./static model.safetensors
check "with the static library it streams: $(cat out)" same_files out expected
check "the static program needs no libminrnn" bash -c '! ldd static | grep -q libminrnn'
c++ -x c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only - $(pkg-config --cflags minrnn) <<'CPP' 2>err
extern "C" { // as many programs include C headers
#include <minrnn_experimental.h>
}
int main()
{
    mr_batch data = MR_BATCH;
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    (void)how;
    return data.B + (int)sizeof(mr_version()) == 0;
}
CPP
check "the header is C++ too: $(cat err)" [ $? -eq 0 ]

mkdir project
cp foreign.c project
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(foreign LANGUAGES C)
find_package(minrnn 0.2 REQUIRED)
add_executable(by_shared foreign.c)
target_link_libraries(by_shared PRIVATE minrnn::minrnn)
add_executable(by_static foreign.c)
target_link_libraries(by_static PRIVATE minrnn::static)
CMAKE
done_by cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$PWD/tree" ${CC:+-DCMAKE_C_COMPILER="$CC"}
done_by cmake --build project/build
for program in by_shared by_static; do
    done_by project/build/$program model.safetensors
    check "by CMake, $program streams" same_files out expected
done

# What --help says, the man page and the completions say.
share=tree/share
for command in train eval generate score info quantize bench check data; do
    check "$command is in the man page" grep -q "^.SS minrnn $command$" $share/man/man1/minrnn.1
    for flag in $("$minrnn" $command --help | grep -oE '^  --[a-z0-9-]+'); do
        check "$command $flag is in the man page" grep -qF -- "${flag//-/\\-}" $share/man/man1/minrnn.1
        check "$command $flag is in each completion" grep -qE -- \
            "l ${flag#--}|$flag" $share/bash-completion/completions/minrnn \
            $share/zsh/site-functions/_minrnn $share/fish/vendor_completions.d/minrnn.fish
    done
done
complete_words() { # the words that bash offers for the given command line
    bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _minrnn; echo "${COMPREPLY[*]}"' \
        $share/bash-completion/completions/minrnn "$@"
}
check "commands are completed" [ "$(complete_words minrnn sc)" = "score" ]
check "flags are completed" [ "$(complete_words minrnn train --norm)" = "--normalize-gates --norm --norm-eps" ]
check "values are completed" [ "$(complete_words minrnn train --mixer min)" = "mingru minlstm" ]
check "files are left to the shell" [ -z "$(complete_words minrnn generate m)" ]
if command -v zsh >/dev/null; then done_by zsh -n $share/zsh/site-functions/_minrnn
else left_out "completion of zsh: no zsh here"; fi
if command -v fish >/dev/null; then done_by fish -n $share/fish/vendor_completions.d/minrnn.fish
else left_out "completion of fish: no fish here"; fi
finish
