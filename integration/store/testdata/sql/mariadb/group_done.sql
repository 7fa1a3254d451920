SELECT g.name FROM `app_message_groups` g WHERE g.name IN ('g', 'h') AND NOT EXISTS (SELECT 1 FROM `app_consumer_messages` m WHERE m.group_key = g.name)
  AND (g.poisoned IS NOT NULL OR NOT EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.group_key = g.name));

SELECT g.name, NOT EXISTS (SELECT 1 FROM `app_consumer_messages` m WHERE m.group_key = g.name)
  AND (g.poisoned IS NOT NULL OR NOT EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.group_key = g.name)) AS done FROM (SELECT name, poisoned FROM `app_message_groups` WHERE name > 'a' ORDER BY name LIMIT 500) g
ORDER BY g.name;
