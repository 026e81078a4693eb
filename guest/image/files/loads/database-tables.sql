-- Tables as TPC-D has them, filled by rule. @SCALE@ = 10 is about 0.02 of its smallest standard size.
CREATE TABLE region AS SELECT i AS r_regionkey, 'REGION ' || i AS r_name FROM generate_series(0, 4) i;
CREATE TABLE nation AS SELECT i AS n_nationkey, 'NATION ' || i AS n_name, i % 5 AS n_regionkey FROM generate_series(0, 24) i;
CREATE TABLE supplier AS SELECT i AS s_suppkey, 'Supplier ' || i AS s_name, draw(i, 1, 25)::int AS s_nationkey,
    (draw(i, 2, 1000000) / 100.0)::numeric(12, 2) AS s_acctbal FROM generate_series(1, 20 * @SCALE@) i;
CREATE TABLE customer AS SELECT i AS c_custkey, 'Customer ' || i AS c_name, draw(i, 3, 25)::int AS c_nationkey,
    (draw(i, 4, 1000000) / 100.0)::numeric(12, 2) AS c_acctbal,
    (ARRAY['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'MACHINERY', 'HOUSEHOLD'])[draw(i, 5, 5) + 1] AS c_mktsegment
    FROM generate_series(1, 300 * @SCALE@) i;
CREATE TABLE part AS SELECT i AS p_partkey, 'Part ' || i AS p_name,
    (ARRAY['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'])[draw(i, 6, 6) + 1] || ' ' ||
    (ARRAY['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'])[draw(i, 7, 5) + 1] AS p_type,
    (900 + draw(i, 8, 100000) / 100.0)::numeric(12, 2) AS p_retailprice FROM generate_series(1, 400 * @SCALE@) i;
CREATE TABLE orders AS SELECT i AS o_orderkey, (draw(i, 9, 300 * @SCALE@) + 1)::int AS o_custkey,
    date '1992-01-01' + draw(i, 10, 2400)::int AS o_orderdate,
    (draw(i, 11, 5) + 1) || '-PRIORITY' AS o_orderpriority, 0 AS o_shippriority
    FROM generate_series(1, 3000 * @SCALE@) i;
CREATE TABLE lineitem AS SELECT o_orderkey AS l_orderkey, line AS l_linenumber,
    (draw(o_orderkey * 8 + line, 12, 400 * @SCALE@) + 1)::int AS l_partkey,
    (draw(o_orderkey * 8 + line, 13, 20 * @SCALE@) + 1)::int AS l_suppkey,
    (draw(o_orderkey * 8 + line, 14, 50) + 1)::numeric(12, 2) AS l_quantity,
    (1000 + draw(o_orderkey * 8 + line, 15, 9000000) / 100.0)::numeric(12, 2) AS l_extendedprice,
    (draw(o_orderkey * 8 + line, 16, 11) / 100.0)::numeric(12, 2) AS l_discount,
    (draw(o_orderkey * 8 + line, 17, 9) / 100.0)::numeric(12, 2) AS l_tax,
    (ARRAY['R', 'A', 'N'])[draw(o_orderkey * 8 + line, 18, 3) + 1] AS l_returnflag,
    (ARRAY['O', 'F'])[draw(o_orderkey * 8 + line, 19, 2) + 1] AS l_linestatus,
    o_orderdate + (1 + draw(o_orderkey * 8 + line, 20, 121))::int AS l_shipdate,
    o_orderdate + (30 + draw(o_orderkey * 8 + line, 21, 61))::int AS l_commitdate,
    o_orderdate + (2 + draw(o_orderkey * 8 + line, 22, 150))::int AS l_receiptdate,
    (ARRAY['AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB', 'REG AIR'])[draw(o_orderkey * 8 + line, 23, 7) + 1] AS l_shipmode
    FROM orders, generate_series(1, 4) line;
CREATE UNIQUE INDEX supplier_key ON supplier (s_suppkey);
CREATE UNIQUE INDEX customer_key ON customer (c_custkey);
CREATE UNIQUE INDEX part_key ON part (p_partkey);
CREATE UNIQUE INDEX orders_key ON orders (o_orderkey);
CREATE INDEX orders_date ON orders (o_orderdate);
CREATE UNIQUE INDEX lineitem_key ON lineitem (l_orderkey, l_linenumber);
