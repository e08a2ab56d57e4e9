#!/usr/bin/env bash
# A shop, from its database to dbt's report of a complete hour. README.md explains each step.
#
#   ./run.sh          in a clone, after `make setup`; everything is in ./.work, and the servers stop at the end
#   ./run.sh --keep   the servers stay, to look around
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${TRIBUTARY_BIN:-$here/../../.venv/bin} # where `tributary` is installed
work=${SHOP_WORK:-$here/.work}
mkdir -p "$work"
work=$(cd "$work" && pwd)
tributary() { "$bin/tributary" "$@"; }
sql() { "$bin/python" "$here/sql.py" "$@"; }
title() { printf '\n== %s\n' "$*"; }

keep=${1:-}
following= # the process that keeps the lake up to date
finish() {
  if [ -n "$following" ]; then kill "$following" && wait "$following" || true; fi
  if [ "$keep" != --keep ]; then tributary stack down --dir "$work/stack"; fi
}
trap finish EXIT

title "1. Start PostgreSQL with a replica, Kafka, Connect, a registry and a Hive Metastore"
if [ -d "$work/stack" ]; then tributary stack down --dir "$work/stack" --delete; fi # of an earlier try
rm -f "$work/servers.yaml" "$work/events.json"
tributary stack up --dir "$work/stack" --metastore --config "$work/servers.yaml"
eval "$(tributary stack env --dir "$work/stack")"
sed "s|thrift://[^ ]*|$TRIBUTARY_METASTORE_URL|" "$here/tributary.yaml" |
  cat "$work/servers.yaml" - > "$work/tributary.yaml"
export TRIBUTARY_CONFIG="$work/tributary.yaml"

title "2. Open a shop, and onboard its tables"
sql "$here/shop.sql"
tributary onboard public.customers public.orders

title "3. Change rows; the lake does not have the hour yet"
hour=$(sql "SELECT to_char(now() AT TIME ZONE 'UTC' - interval '1 hour', 'YYYY-MM-DD\"T\"HH24')")
sql "$here/changes.sql"
if tributary complete public.orders "$hour"; then
  echo "no run has announced this hour yet, but it counts as complete" >&2
  exit 1
fi

title "4. Follow the changes; wait until the hour is complete"
"$bin/tributary" run --continuous > "$work/run.log" 2>&1 & # no function, so that $! is the process itself
following=$!
tributary complete public.orders "$hour" --wait 10m

title "5. Describe the tables for dbt"
cp -R "$here/dbt" "$work/"
tributary export dbt-sources > "$work/dbt/models/sources.yml"
cat "$work/dbt/models/sources.yml"

title "6. Build the report of the hour with dbt"
if ! cmp -s "$here/requirements.lock" "$here/.venv/made-from.lock"; then
  "$bin/uv" venv --quiet --clear --python "$bin/python" "$here/.venv"
  "$bin/uv" pip sync --quiet --python "$here/.venv/bin/python" --require-hashes "$here/requirements.lock"
  cp "$here/requirements.lock" "$here/.venv/made-from.lock"
fi
JAVA_HOME=$("$bin/python" -c 'from cdc.runtime.java import find_java; print(find_java().home)')
HUDI_JAR=$("$bin/python" -c 'from cdc.runtime.jars import spark_jars
print(*(jar for jar in spark_jars() if "hudi" in jar.name))')
export JAVA_HOME HUDI_JAR SHOP_WAREHOUSE="$work/stack/warehouse"
dbt() { (cd "$work/dbt" && env -u PYTHONPATH "$here/.venv/bin/dbt" --no-use-colors "$@" --vars "hour: $hour" 2>> "$work/spark.log"); }
dbt source freshness
dbt build | tee "$work/build.txt"

title "7. Compare the report with the same hour at the source"
sql "SELECT '$hour', status, count(*), sum(total) FROM orders
  WHERE date_trunc('hour', placed_at) = '$hour:00Z' GROUP BY status ORDER BY status" > "$work/source.txt"
grep "^$hour" "$work/build.txt" | diff "$work/source.txt" - || { echo "the report differs" >&2; exit 1; }
cat "$work/source.txt"
echo "The report of $hour equals the source."

title "8. Send lineage to a file, and show where the report comes from"
echo "transport: {type: file, log_file_path: '$work/events.json', append: true}" > "$work/openlineage.yml"
OPENLINEAGE_CONFIG="$work/openlineage.yml" tributary lineage
"$bin/python" "$here/lineage.py" "$work/events.json" "$work/dbt/target/manifest.json"
