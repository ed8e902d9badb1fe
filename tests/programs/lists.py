# Big lists, dictionaries and sets, many small objects; a checksum at the end.
import random, zlib

random.seed(42)
rows = [(random.random(), i, str(i)) for i in range(150_000)]
index = {text: (value, i) for value, i, text in rows}
total = 0
for turn in range(12):
    rows.sort(key=lambda row: (row[1] * 2654435761 + turn * 40503) % 1000003)
    total = zlib.crc32(repr(rows[:2000]).encode(), total)
    words = [text[::-1] for _, _, text in rows]
    index.update({word: (0.5, turn) for word in words[::7]})
    print(turn, len(index), total, flush=True)
print("end", total, len(set(index)))
