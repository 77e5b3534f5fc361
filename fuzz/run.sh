#!/usr/bin/env bash
# Runs fuzz targets one after the other and prints what came of it, as a table in Markdown.
#
#   fuzz/run.sh [SECONDS [TARGET...]]       300 seconds each, every target of Cargo.toml
#
# New inputs go to fuzz/corpus/TARGET, findings to fuzz/artifacts/TARGET. Ends with 1 if there was a finding.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-300}
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n '/^\[\[bin\]\]/,/^path/s/^name = "\(.*\)"/\1/p' Cargo.toml)
fi
toolchain=${TOOLCHAIN:-nightly}
triple=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')
binaries=${CARGO_TARGET_DIR:-target}/$triple/release
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

for target in "${targets[@]}"; do
    cargo "+$toolchain" fuzz build "$target" >&2
done

rows=()
failed=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    options=(-max_total_time="$seconds" -timeout=30 -rss_limit_mb=3000 -print_final_stats=1
        -artifact_prefix="artifacts/$target/")
    [ -f "dictionaries/$target" ] && options+=(-dict="dictionaries/$target")
    log=$logs/$target
    finding=none
    # cargo-fuzz sets the same option of the sanitizer.
    if ! ASAN_OPTIONS=${ASAN_OPTIONS:-detect_odr_violation=0} \
        "$binaries/$target" "corpus/$target" "seeds/$target" "${options[@]}" 2> "$log"; then
        failed=1
        finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
        tail -60 "$log" >&2
    fi
    last=$(grep -E ' cov: ' "$log" | tail -1 || true)
    figure() { sed -n "s/.* $1: *\([0-9]*\).*/\1/p" <<< "$last"; }
    stat() { sed -n "s/^stat::$1: *//p" "$log"; }
    ran=$(sed -n 's/^Done [0-9]* runs in \([0-9]*\) second.*/\1/p' "$log")
    rows+=("| \`$target\` | ${ran:-?} | $(stat number_of_executed_units) | $(figure cov) | $(figure ft) | $(stat peak_rss_mb) | ${finding:-unknown} |")
done

echo "| target | seconds | executions | edges | features | peak MiB | finding |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
printf '%s\n' "${rows[@]}"
exit "$failed"
