-- What the shop does after its tables are in the lake: orders are paid, shipped, cancelled and placed.
UPDATE orders SET status = 'paid' WHERE id % 2 = 0;
UPDATE orders SET status = 'shipped' WHERE id % 10 = 0;
DELETE FROM orders WHERE id % 97 = 0;
INSERT INTO orders (customer_id, total) SELECT n, 9.99 FROM generate_series(1, 20) AS n;
