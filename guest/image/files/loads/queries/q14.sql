SELECT round(100 * sum(l_extendedprice * (1 - l_discount)) FILTER (WHERE p_type LIKE 'PROMO%')
    / sum(l_extendedprice * (1 - l_discount)), 6)
FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= date '1995-01-01' AND l_shipdate < date '1996-01-01';
