EXECUTE asyncmonolith_settle_17b45e57d10d171b('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000, NULL, NULL);
