#!/bin/bash
# Labels in archives of NumPy's and SciPy's (tests/golden/make_npz.py made them): one array, or a CSR matrix.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
golden=$PWD/tests/golden
cd "$scratch" || exit 1

# Unit vectors, as an array of rows of 6: the layer answers with the number of the query's one coordinate.
units() { # PLACE...
    local header="{'descr': '<f4', 'fortran_order': False, 'shape': ($#, 6), }" at i
    printf '\x93NUMPY\x01\x00%b%s\n' "$(printf '\\x%02x\\x00' $((${#header} + 1)))" "$header"
    for at; do
        for i in 0 1 2 3 4 5; do [ "$i" = "$at" ] && printf '\x00\x00\x80\x3f' || printf '\x00\x00\x00\x00'; done
    done
}
units 0 1 2 3 4 5 >w.npy
units 3 0 0 5 4 >q.npy
"$WIDEOUT" build --layer w.npy --method full -o full -q >/dev/null
judge() { # LABELS: queries, those without a label, P@1, P@3
    "$WIDEOUT" eval --index full --log q.npy --labels "$1" --no-timing --json -q | jq -c '[.n, .without_label, .p_at_1, (.p_at_3 * 12 | round)]'
}
# {1, 3}, {}, {0}, {2, 3, 5}, {4}. Behind the first answer come the lowest numbers: 3 0 1, 0 1 2, 0 1 2, 5 0 1, 4 0 1.
for name in csr csr-stored; do
    same "eval: $name" '[5,1,1,5]' "$(judge "$golden/labels-$name.npz")"
done
same 'eval: one array' '[5,1,0.75,3]' "$(judge "$golden/labels-one.npz")" # 3, none, 0, 2, 4
same 'eval: a table' '[5,1,1,5]' "$(judge "$golden/labels-table.npz")"
cp "$golden/labels-csr.npz" y.npy
same 'recognised by content' '[5,1,1,5]' "$(judge y.npy)"
"$WIDEOUT" build --layer w.npy --log q.npy --labels "$golden/labels-csr.npz" --method popular --popular 9 -o popular -q --json >popular.json
same 'build: the labels that occur' 6 "$(jq .entries popular.json)"
"$WIDEOUT" build --layer w.npy --log q.npy --tune-log q.npy --tune-labels "$golden/labels-csr.npz" --target 0.1 --max-time 0.1s -o tuned -q >said 2>&1
same 'build: the log is the tune log' "wideout build: --tune-log is the log that is learned from, which flatters every index: give other queries, or leave it out, and a tenth of the log is held out (see 'wideout build --help')" "$(cat said)"
cp q.npy other.npy
check 'build: labels of the tune log' "$WIDEOUT" build --layer w.npy --log q.npy --tune-log other.npy --tune-labels "$golden/labels-csr.npz" \
    --labels "$golden/labels-one.npz" --target 0.1 --max-time 0.1s -o tuned -q

refuses() { # NAME SENTENCE LABELS [LOG]
    fails "$1" 1 "wideout: $3: $2" "$WIDEOUT" eval --index full --log "${4:-q.npy}" --labels "$3" --no-timing
}
refuses 'another format' "the matrix has the format 'csc', expected 'csr': save it with .tocsr()" "$golden/labels-csc.npz"
refuses 'two arrays' "the archive has 2 arrays: expected one, of labels, or a CSR matrix of SciPy's" "$golden/labels-two.npz"
units 1 2 >two.npy
refuses 'too many labels' 'the labels have 5 rows, expected 2: one for each query' "$golden/labels-csr.npz" two.npy
LC_ALL=C sed 's/(5, 6)/(6, 5)/' q.npy >turned.npy
fails 'as many labels as the queries have numbers' 1 \
    'wideout: turned.npy: 6 queries of 5 numbers, and there are labels of 5: is the log transposed? Its rows are queries' \
    "$WIDEOUT" eval --index full --log turned.npy --labels "$golden/labels-csr.npz" --no-timing
fails 'a label that the layer lacks' 1 "wideout: $golden/labels-csr.npz: query 0 has label 3, the layer 2 classes" \
    "$WIDEOUT" build --layer two.npy --log q.npy --labels "$golden/labels-csr.npz" --method popular -o none
refuses 'rows that overlap' 'row 1 of the matrix goes from 2 to 1 of 3 indices' "$golden/labels-bad-row.npz"
refuses 'a column beyond the matrix' 'row 0 has column 6, which is not below the 6 of the matrix' "$golden/labels-bad-column.npz"
refuses 'a negative column' 'the label of query 0 is -1, expected 0 to 2147483647' "$golden/labels-bad-negative.npz"
refuses 'fewer numbers than indices' "'data.npy' of 129 bytes has no number for each of the 3 indices" "$golden/labels-bad-data.npz"
refuses 'a matrix without its rows' "the archive is no matrix of SciPy's: it has no 'indptr.npy'" "$golden/labels-bad-none.npz"
refuses 'columns that are no integers' 'indices.npy: the array has 1 dimensions, of F64: expected 1 of I32 or I64' "$golden/labels-bad-type.npz"
refuses 'more rows than it says' "'indptr.npy' has 6 numbers, expected one more than the 4 rows" "$golden/labels-bad-shape.npz"

# ---- Damaged -------------------------------------------------------------------------------------------------------
change() { # FROM OFFSET BYTES(printf %b)
    cp "$golden/$1" changed.npz
    printf '%b' "$3" | dd of=changed.npz bs=1 seek="$2" conv=notrunc 2>/dev/null
}
at() { # FILE TEXT N: where it is for the Nth time
    grep -obUaP "$2" "$golden/$1" | sed -n "$3p" | cut -d : -f 1
}
list=$(at labels-one.npz 'PK\x01\x02' 1) end=$(at labels-one.npz 'PK\x05\x06' 1)
head -c "$end" "$golden/labels-one.npz" >cut.npz
refuses 'cut off' 'the archive has no end: it is truncated, or no .npz file' cut.npz
printf 'PK\x03\x04' >short.npz
refuses 'four bytes' 'the archive has no end: it is truncated, or no .npz file' short.npz
printf 'PK\x05\x06%018d' 0 | tr 0 '\000' >nothing.npz
refuses 'an empty archive' "the archive has 0 arrays: expected one, of labels, or a CSR matrix of SciPy's" nothing.npz
change labels-one.npz $((end + 16)) '\xff\xff\xff\xff'
refuses 'a list beyond the end' "the list of the archive has 51 bytes at 4294967295, which is beyond its end at $end, or the archive is larger than 4 GiB" changed.npz
change labels-one.npz "$list" 'X'
refuses 'no entry' 'the list of the archive is damaged: expected an entry' changed.npz
change labels-one.npz $((list + 28)) '\xff\xff'
refuses 'an entry that is too long' 'the list of the archive is damaged: an entry of 65581 bytes' changed.npz
change labels-one.npz $((list + 42)) '\x07'
refuses 'a member that is elsewhere' "'y.npy' should lie at byte 7 of the archive, and does not" changed.npz
change labels-one.npz $((list + 20)) '\xff\xff\xff\xff'
refuses 'a member beyond the end' "'y.npy' takes 4294967295 bytes at 0, more than the archive has" changed.npz
change labels-one.npz $((list + 24)) '\x00'
refuses 'a member of another size' "'y.npy' has 0 bytes, which its 168 packed ones cannot be" changed.npz
change labels-one.npz $((list + 10)) '\x0c'
refuses 'another method' "'y.npy' is encrypted, or packed by method 12: expected stored or deflated" changed.npz
change labels-one.npz $((list - 1)) '\x01'
refuses 'a changed byte' "'y.npy' was changed: its checksum is ebd58da5, not 9cd2bd33" changed.npz
table=$(at labels-table.npz 'PK\x01\x02' 1)
change labels-table.npz $((table + 24)) '\xff\xff\xff\x7f'
refuses 'a bomb' "'arr_0.npy' has 2147483647 bytes, which its 93 packed ones cannot be" changed.npz
change labels-table.npz $((table - 20)) '\xff\xff\xff\xff'
refuses 'what cannot be unpacked' "'arr_0.npy' cannot be unpacked to its 168 bytes" changed.npz

# ---- Bombs: small archives that would take much memory, refused before they do --------------------------------------------
if [ -x /usr/bin/python3 ]; then
    /usr/bin/python3 - <<'END'
import struct, zipfile

def npy(kind, n, data):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, n)).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + data

def longs(*values):
    return npy("<i8", "(%d,)" % len(values), struct.pack("<%dq" % len(values), *values))

def save(name, **arrays):
    parts = {"format": npy("|S3", "()", b"csr"), "shape": longs(5, 6), "indptr": longs(0, 0, 0, 0, 0, 0), "indices": longs(), "data": npy("<f4", "(0,)", b"")}
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as z:
        for part, data in {**parts, **arrays}.items():
            z.writestr(part + ".npy", data)

# Numbers that are not as many as the indices, though their bytes can be dealt out evenly.
save("none.npz", indptr=longs(0, 1, 1, 1, 1, 1), indices=longs(0))
save("quarter.npz", indptr=longs(0, 4, 4, 4, 4, 4), indices=longs(0, 1, 2, 3), data=npy("<f4", "(1,)", struct.pack("<f", 1)))

zeros = bytes(400 << 20)
save("shape.npz", shape=npy("<i8", "(13107200,)", zeros[:100 << 20]))
save("indptr.npz", indptr=npy("<i8", "(13107200,)", zeros[:100 << 20]))
save("data.npz", data=npy("<f4", "(26214400,)", zeros[:100 << 20]))
save("format.npz", format=npy("|S100000000", "()", zeros[:100000000]))
save("indices.npz", indices=npy("<i8", "(13107200,)", zeros[:100 << 20]))
save("much.npz", indptr=longs(0, 0, 0, 0, 0, len(zeros) // 8), indices=npy("<i8", "(%d,)" % (len(zeros) // 8), zeros))

# One packed array under two names: 'indices.npy' of the list lies where 'indptr.npy' does.
save("twice.npz")
with open("twice.npz", "rb") as file:
    data = bytearray(file.read())
at = {}
place = data.index(b"PK\1\2")
while data[place:place + 4] == b"PK\1\2":
    n, extra, comment = struct.unpack_from("<HHH", data, place + 28)
    at[bytes(data[place + 46:place + 46 + n])] = place
    place += 46 + n + extra + comment
for first, end in ((16, 28), (42, 46)):
    data[at[b"indices.npy"] + first:at[b"indices.npy"] + end] = data[at[b"indptr.npy"] + first:at[b"indptr.npy"] + end]
with open("twice.npz", "wb") as file:
    file.write(data)
END
    bytes() { stat -c %s "$1"; }
    refuses 'no number for any index' "'data.npy' of 68 bytes has no number for each of the 1 indices" none.npz
    refuses 'one number for four indices' "'data.npy' of 72 bytes has no number for each of the 4 indices" quarter.npz
    refuses 'a shape of many numbers' "'shape.npy' has 104857675 bytes, more than the numbers that belong there take" shape.npz
    refuses 'many more rows than the shape says' "'indptr.npy' has 104857675 bytes, more than the numbers that belong there take" indptr.npz
    refuses 'many more indices than the rows use' "'indices.npy' has 104857675 bytes, more than the numbers that belong there take" indices.npz
    refuses 'more numbers than indices' "'data.npy' has 104857675 bytes, more than the numbers that belong there take" data.npz
    refuses 'a long format' "'format.npy' has 100000074 bytes, more than the numbers that belong there take" format.npz
    refuses 'all of it together' "the archive of $(bytes much.npz) bytes has more than $((67108864 + 200 * $(bytes much.npz))) when it is unpacked: save it without compression, if it is meant" much.npz
    refuses 'one array under two names' "'indices.npy' lies where another array of the archive does" twice.npz
else
    ok 'no python3 here: no bombs # skip'
fi
finish
