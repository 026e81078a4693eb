SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
    sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), round(avg(l_quantity), 4), round(avg(l_extendedprice), 4),
    round(avg(l_discount), 4), count(*)
FROM lineitem WHERE l_shipdate <= date '1998-12-01' - 90 GROUP BY 1, 2 ORDER BY 1, 2;
