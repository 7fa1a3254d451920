DELETE FROM "app_inbox_messages" WHERE receiver = 'from-orders' AND hash IN (
  SELECT i.hash FROM "app_inbox_messages" i WHERE i.receiver = 'from-orders' AND i.received_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) + -3600000000 ORDER BY i.received_at LIMIT 1000 );
