EXECUTE asyncmonolith_settle_e4848dfb692e3da5('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000, NULL, NULL);
