#!/usr/bin/env bash
# Runs fuzz targets and prints what came of it, as a table in Markdown.
#
#   fuzz/run.sh [SECONDS [TARGET...]]       300 seconds each, every target of Cargo.toml
#
#   SANITIZER=address        AddressSanitizer, some three times slower; none without it
#   JOBS=2                   targets at a time; 1 without it
#   CORPUS=FOLDER            new inputs; fuzz/corpus without it
#   RUNS=NUMBER              inputs of each target at most, seeds among them; any number without it
#   SEED=NUMBER              where libFuzzer's random choices begin; another place each time without it
#
# Every seed runs before the time counts. New inputs go to CORPUS/TARGET, findings to fuzz/artifacts/TARGET. Ends with 1 if there was a finding.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-300}
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n '/^\[\[bin\]\]/,/^path/s/^name = "\(.*\)"/\1/p' Cargo.toml)
fi
corpus=${CORPUS:-corpus}
# What cargo-fuzz asks a nightly compiler for; a stable one has it too. With a target, build scripts and macros do without.
triple=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Clink-arg=-Wl,-z,nostart-stop-gc"
built=${CARGO_TARGET_DIR:-target}
if [ "${SANITIZER:-none}" = address ]; then
    # The option is not stable, the sanitizer's library comes with the compiler. Its builds do not replace the others.
    export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$built/address
    RUSTFLAGS+=" -Zsanitizer=address"
    built=$CARGO_TARGET_DIR
fi
cargo build --locked --release --target "$triple" "${targets[@]/#/--bin=}" >&2
binaries=$built/$triple/release
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

fuzz() {
    local target=$1
    mkdir -p "$corpus/$target" "artifacts/$target"
    local options=(-max_total_time="$seconds" -entropic=0 -timeout=60 -rss_limit_mb=3000 -print_final_stats=1
        -artifact_prefix="artifacts/$target/")
    [ -n "${RUNS:-}" ] && options+=(-runs="$RUNS")
    [ -n "${SEED:-}" ] && options+=(-seed="$SEED")
    [ -f "dictionaries/$target" ] && options+=(-dict="dictionaries/$target")
    # Entropic schedules take longer than most inputs. The sanitizer's option is cargo-fuzz's own.
    ASAN_OPTIONS=${ASAN_OPTIONS:-detect_odr_violation=0} \
        bash -c 'TIMEFORMAT="cpu: %U %S"; time "$@"' _ "$binaries/$target" "$corpus/$target" "seeds/$target" "${options[@]}" \
        2> "$logs/$target" || touch "$logs/$target.failed"
}

for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n || true; done
    fuzz "$target" &
done
wait

echo "| target | seconds | of a core | executions | per second of a core | edges | features | peak MiB | finding |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
for target in "${targets[@]}"; do
    log=$logs/$target
    finding=none
    if [ -e "$log.failed" ]; then
        finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
        tail -60 "$log" >&2
    fi
    last=$(grep -E ' cov: ' "$log" | tail -1 || true)
    figure() { sed -n "s/.* $1: *\([0-9]*\).*/\1/p" <<< "$last"; }
    stat() { sed -n "s/^stat::$1: *//p" "$log"; }
    ran=$(sed -n 's/^Done [0-9]* runs in \([0-9]*\) second.*/\1/p' "$log")
    runs=$(stat number_of_executed_units)
    cpu=$(awk '/^cpu: /{print $2 + $3}' "$log")
    rate=$(awk -v runs="$runs" -v cpu="$cpu" 'BEGIN{if (cpu > 0) printf "%.0f", runs / cpu}')
    echo "| \`$target\` | ${ran:-?} | $cpu | $runs | $rate | $(figure cov) | $(figure ft) | $(stat peak_rss_mb) | ${finding:-unknown} |"
done
! compgen -G "$logs/*.failed" >/dev/null
