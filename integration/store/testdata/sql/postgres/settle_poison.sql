EXECUTE asyncmonolith_settle_6ef65aaaf6125d41('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000, NULL, NULL);
