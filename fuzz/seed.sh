#!/usr/bin/env bash
# Builds the seed corpora from tests/cases. What a fuzzer has found already stays. Needs openssl.
set -euo pipefail
cd "$(dirname "$0")"
cases=../tests/cases
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# 8 bytes, little endian: December 2027.
now() { printf '\x80\xb1\x13\x6d\x00\x00\x00\x00'; }

mkdir -p corpus/{pem,pem_differential,bundle,leaf,watch_plan,schedule}

for file in "$cases"/[CD]* "$cases"/pki/*; do
    case $file in *.expect | *C26-bundle-200*) continue ;; esac
    cp "$file" corpus/pem/
    cp "$file" corpus/pem_differential/
done

# The first certificate of each file, as DER, and the time.
for file in corpus/pem/*.pem; do
    if openssl x509 -in "$file" -outform DER -out "$scratch/der" 2>/dev/null; then
        { cat "$scratch/der" && now; } >"corpus/leaf/$(basename "$file" .pem).der"
    fi
done

# A CRL and an OCSP response, of a CA made of a key that is there.
(
    cd "$scratch"
    pki=$OLDPWD/$cases/pki
    printf 'V\t460101000000Z\t\t01\tunknown\t/CN=a\nR\t460101000000Z\t260101000000Z\t02\tunknown\t/CN=b\n' >index.txt
    echo 01 >crlnumber
    printf '[ca]\ndefault_ca=ca\n[ca]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\ndefault_crl_days=30\n' >ca.cnf
    openssl req -x509 -new -key "$pki/leaf.key" -subj '/CN=seed CA' -days 9000 -out ca.pem
    openssl req -x509 -new -key "$pki/rsa.key" -subj '/CN=a' -set_serial 1 -days 9000 -CA ca.pem -CAkey "$pki/leaf.key" -out a.pem
    openssl ca -gencrl -config ca.cnf -cert ca.pem -keyfile "$pki/leaf.key" -out crl.pem
    openssl crl -in crl.pem -outform DER -out crl.der
    openssl ocsp -index index.txt -CA ca.pem -rsigner ca.pem -rkey "$pki/leaf.key" -issuer ca.pem -cert a.pem -ndays 9000 -respout ocsp.der
    cat a.pem ca.pem >stapled.pem
) >/dev/null 2>&1
cp "$scratch/crl.pem" corpus/pem/
cp "$scratch/crl.pem" corpus/pem_differential/

# The time, then certificate, key, CA, CRL and OCSP response, as many as there are, as the target splits them.
bundle() {
    local name=$1 separator=
    shift
    {
        now
        for part; do
            printf '%b' "$separator"
            cat "$part"
            separator='\n%%\n'
        done
    } >"corpus/bundle/$name"
}
leaf=$cases/pki/leaf.pem key=$cases/pki/leaf.key
for file in "$cases"/[CD]*.expect; do
    file=${file%.expect}
    name=$(basename "$file")
    case $(<"$file.expect") in
    *C26-bundle-200*) ;;
    'role=chain+key'*) bundle "$name" "$file" ;;
    'role=chain with '*)
        with=$(sed 's/^role=chain with \([^;]*\);.*/\1/' "$file.expect")
        bundle "$name" "$file" "$cases/$with"
        ;;
    'role=chain'*) bundle "$name" "$file" "$key" ;;
    'role=ca'*) [ "$(stat -c %s "$file")" -gt 20000 ] || bundle "$name" "$leaf" "$key" "$file" ;;
    *)
        sibling=${file%.key}.pem
        [ -e "$sibling" ] || sibling=$leaf
        bundle "$name" "$sibling" "$file"
        ;;
    esac
done
bundle rsa "$cases/pki/rsa.pem" "$cases/pki/rsa.key"
bundle all "$leaf" "$key" "$cases/pki/root.pem" "$scratch/crl.pem" "$scratch/ocsp.der"
bundle all-der "$leaf" "$key" "$cases/pki/root.pem" "$scratch/crl.der" "$scratch/ocsp.der"

bundle stapled "$scratch/stapled.pem" "$cases/pki/rsa.key" "$scratch/ca.pem" "$scratch/crl.pem" "$scratch/ocsp.der"

for corpus in corpus/*; do
    printf '%s: %s files\n' "$corpus" "$(find "$corpus" -type f | wc -l)"
done
