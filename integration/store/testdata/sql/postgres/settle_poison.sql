EXECUTE asyncmonolith_settle_8d201e7102c595bf('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000);
