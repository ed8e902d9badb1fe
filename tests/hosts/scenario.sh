#!/bin/sh
# scenario.sh WAYFARER DIR -- COMMAND [ARGUMENT]...
#
# One job on this machine: run, checkpoint and go on, checkpoint and kill, restart, let go.
# DIR holds state/ and data/ and gets the images. $RUN, $CHECKPOINT and $RESTART are more arguments
# for these, $RESTART_ON words in front of the last. With $NOEXEC the image itself must not be
# executable. Says each step that is done, and PASS; else what went wrong, and exits with 1.
set -u
wayfarer=$1 dir=$2
shift 3
fail() { echo "FAIL: $*"; cat "$dir"/*.said 2>/dev/null; exit 1; }
tell() { "$wayfarer" --dir "$dir/state" "$@"; }
wait_for() { # wait_for FILE WORD
    for _ in $(seq 400); do
        grep -q "$2" "$1" 2>/dev/null && return 0
        kill -0 $! 2>/dev/null || break
        sleep 0.05
    done
    fail "$2 does not come in $1"
}

# shellcheck disable=SC2086
tell run --quiet --name job ${RUN:-} -- "$@" 2>&1 | cat >"$dir/run.said" &
wait_for "$dir/run.said" READY
# shellcheck disable=SC2086
tell checkpoint job -o "$dir/1.img" ${CHECKPOINT:-} || fail "checkpoint, going on"
echo "went on"
# shellcheck disable=SC2086
tell checkpoint job -o "$dir/2.img" --then kill ${CHECKPOINT:-} || fail "checkpoint, killing"
wait $!
if [ -n "${NOEXEC:-}" ]; then
    "$dir/2.img" && fail "an image on a noexec file system was executed"
    echo "not executable"
fi
# shellcheck disable=SC2086
${RESTART_ON:-} "$wayfarer" --dir "$dir/state" restart --name job ${RESTART:-} "$dir/2.img" 2>&1 | cat >"$dir/restart.said" &
: >"$dir/data/go" # it looks for it once it is there again
wait $!
grep -q '^PASS$' "$dir/restart.said" || fail restart
cat "$dir/restart.said"
