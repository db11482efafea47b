#!/bin/sh
# facet-wait.sh TASK [CURSOR]: wait with curl alone until a task ended or needs a decision, and print that event.
# Exit code 0: it is printed. 1: the server refused; its problem document is printed. 2: wrong usage.
set -u
task=${1:-} cursor=${2:-0}
case $task in task_*) ;; *) echo "usage: facet-wait.sh TASK [CURSOR]" >&2; exit 2 ;; esac
: "${FACET_URL:?}" "${FACET_TOKEN:?}"
types='["task.succeeded","task.failed","task.cancelled","task.unschedulable","task.attention","approval.requested"]'
failures=0
while :; do
  body="{\"subject\":\"$task\",\"after\":$cursor,\"timeout_s\":50,\"types\":$types}"
  answer=$(printf 'header = "Authorization: Bearer %s"\n' "$FACET_TOKEN" |
    curl -sS -K - -m 75 -w '\n%{http_code}' -H 'Content-Type: application/json' -d "$body" \
      "$FACET_URL/api/v1/skills/wait_for_events")
  status=$(printf '%s\n' "$answer" | tail -n 1)
  answer=$(printf '%s\n' "$answer" | sed '$d')
  case $status in
    200) failures=0 ;;
    410) cursor=$(printf '%s' "$answer" | sed -n 's/.*"oldest": *\([0-9][0-9]*\).*/\1/p'); continue ;;
    4?? | 3??)
      if [ "$status" != 429 ]; then printf '%s\n' "$answer"; exit 1; fi
      sleep 5; continue ;;
    *)
      failures=$((failures + 1))
      if [ "$failures" -gt 60 ]; then printf '%s\n' "$answer"; exit 1; fi
      sleep "$((failures < 10 ? failures : 10))"; continue ;;
  esac
  case $answer in *'"events":[]'*) ;; *) printf '%s\n' "$answer"; exit 0 ;; esac
  cursor=$(printf '%s' "$answer" | sed -n 's/.*"next": *\([0-9][0-9]*\).*/\1/p')
done
