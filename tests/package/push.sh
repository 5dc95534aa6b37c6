#!/usr/bin/env bash
# Pushes the image layouts of a folder to a registry, and prints the values of the chart that use
# them by digest. Usage: push.sh FOLDER REGISTRY
#
# Credentials are those of `docker login` or `crane auth login`. SSL_CERT_FILE names the
# certificate authorities of a private registry; INSECURE=yes allows plain HTTP.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$1 registry=${2%/}
tools=$(tests/tools/install.sh crane)
fail() { printf '%s\n' "$*" >&2 && exit 1; }
[[ $registry =~ ^[][a-z0-9.:_-]+(/[a-z0-9._-]+)*$ ]] || fail "REGISTRY=$registry is not a registry: use host/path in lower case, such as ghcr.io/example"
[ -s "$folder/digests.txt" ] || fail "$folder has no images: run make images"
flags=()
[ "${INSECURE:-}" != yes ] || flags+=(--insecure)
error=$(mktemp)
trap 'rm -f "$error"' EXIT

# push IMAGE DIGEST: pushes a layout, and checks that the registry has the digest of the layout.
push() {
  local pushed hint=""
  if ! timeout "${PUSH_TIMEOUT:-300}" "$tools/crane" push "${flags[@]}" "$folder/${1/:/-}" "$registry/$1" >/dev/null 2>"$error"; then
    case $(cat "$error") in
    *"server gave HTTP response to HTTPS client"*) hint="; the registry speaks plain HTTP: use INSECURE=yes" ;;
    *"certificate signed by unknown authority"* | *"failed to verify certificate"*) hint="; set SSL_CERT_FILE to the certificate authority of the registry" ;;
    *UNAUTHORIZED* | *DENIED* | *"401 Unauthorized"* | *"403 Forbidden"*) hint="; log in with: crane auth login ${registry%%/*}" ;;
    *"connection refused"* | *"no such host"* | *"i/o timeout"*) hint="; the registry can't be reached" ;;
    esac
    fail "can't push $registry/$1: $(tail -n1 "$error" | cut -c1-600)$hint"
  fi
  pushed=$("$tools/crane" digest "${flags[@]}" "$registry/$1" 2>"$error") || fail "can't read $registry/$1: $(tail -n1 "$error")"
  [ "$pushed" = "$2" ] || fail "$registry/$1 has digest $pushed instead of $2"
  printf 'pushed %s@%s\n' "$registry/$1" "$2" >&2
}

operator="" webhook="" slim=""
while read -r image digest; do
  push "$image" "$digest"
  case $image in
  knative-operator:*-slim) slim=$digest ;;
  knative-operator:*) operator=$digest ;;
  knative-operator-webhook:*) webhook=$digest ;;
  esac
done <"$folder/digests.txt"
printf 'helm install knative-operator charts/knative-operator --namespace knative-operator --create-namespace --wait'
printf ' --set knative_operator.knative_operator.image=%s,knative_operator.knative_operator.digest=%s' "$registry/knative-operator" "${operator:-$slim}"
printf ' --set knative_operator.operator_webhook.image=%s,knative_operator.operator_webhook.digest=%s\n' "$registry/knative-operator-webhook" "$webhook"
[ -n "$operator" ] || printf '# This image has no release bundle: also set knative_operator.releases.image to an image with one.\n'
