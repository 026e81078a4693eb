-- Random numbers that are always the same: draw(i, seed, n) is in 0 .. n - 1.
CREATE FUNCTION draw(i bigint, seed bigint, n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
'SELECT (hashint8extended(i, seed) & 9223372036854775807) % n';
