#!/usr/bin/env bash
# A CA and a certificate of it for shop.test and cart.test, in the directory $1.
set -euo pipefail
cd "$1"
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj "/CN=Browser test CA" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout leaf.key -out leaf.csr -subj "/CN=shop.test" 2>/dev/null
openssl x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out leaf.crt -days 30 \
  -extfile <(printf 'subjectAltName=DNS:shop.test,DNS:cart.test') 2>/dev/null
