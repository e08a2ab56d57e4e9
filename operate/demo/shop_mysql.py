"""The demo's shop on MySQL and MariaDB, in SQL that both understand.

The SQL quotes ``manual``, a word that new versions of MySQL reserve. The SQL uses ``sha2``, since
not every server has ``md5``.
"""

from __future__ import annotations

from operate.demo.shop import KEYLESS, TABLES, WITNESSES, Deed, ShopKind

_SIDE = 350


def _filled(insert: str, count: int) -> str:
    """Return an INSERT ... SELECT of the demo; its column ``i`` counts from 1 to ``count``.

    The numbers come from a cross join of two short recursive queries, since the servers end a
    recursive query after a thousand steps.

    Args:
        insert: The beginning of the statement: the INSERT, and the SELECT without its FROM clause.
        count: Number of rows to insert.
    """
    return f"""{insert} FROM (
      WITH RECURSIVE side AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM side WHERE i < {_SIDE - 1})
      SELECT a.i * {_SIDE} + b.i + 1 AS i FROM side AS a CROSS JOIN side AS b
      WHERE a.i * {_SIDE} + b.i < {count}) AS n"""  # noqa: S608 - text and numbers of our own


_CREATE: tuple[str, ...] = (
    *(f"DROP TABLE IF EXISTS shop.{name}" for name in (*TABLES, KEYLESS)),
    """CREATE TABLE shop.customers (
      id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
      email varchar(100) CHARACTER SET ascii NOT NULL UNIQUE,
      name varchar(100) CHARACTER SET utf8mb4 NOT NULL,
      joined_at timestamp(6) NOT NULL DEFAULT current_timestamp(6),
      newsletter boolean NOT NULL DEFAULT false
    )""",
    """CREATE TABLE shop.products (
      sku varchar(20) NOT NULL PRIMARY KEY,
      title varchar(100) NOT NULL,
      price decimal(10, 2) NOT NULL,
      stock int unsigned NOT NULL,
      colour enum('red', 'green', 'blue') NOT NULL,
      size tinyint unsigned,
      `manual` mediumtext NOT NULL
    )""",
    """CREATE TABLE shop.orders (
      id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
      customer_id int unsigned NOT NULL,
      status enum('new', 'paid', 'shipped', 'returned') NOT NULL DEFAULT 'new',
      total decimal(12, 2) NOT NULL,
      placed_at datetime(6) NOT NULL DEFAULT current_timestamp(6)
    )""",
    """CREATE TABLE shop.order_lines (
      order_id bigint unsigned NOT NULL,
      line smallint unsigned NOT NULL,
      sku varchar(20) NOT NULL,
      quantity smallint unsigned NOT NULL,
      price decimal(10, 2) NOT NULL,
      PRIMARY KEY (order_id, line)
    )""",
    """CREATE TABLE shop.carts (
      id char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
      customer_id int unsigned NOT NULL,
      skus text NOT NULL,
      wrapping set('box', 'paper', 'ribbon'),
      weight_kg double,
      expires_on date,
      token varbinary(16)
    )""",
    """CREATE TABLE shop.page_views (
      seen_at datetime(6) NOT NULL DEFAULT current_timestamp(6),
      path varchar(200) NOT NULL
    )""",
)

_FILL: tuple[str, ...] = (
    _filled(
        """INSERT INTO shop.customers (id, email, name, joined_at, newsletter)
        SELECT i, concat('user', i, '@example.org'),
               concat(elt(i % 4 + 1, 'Ana', 'Zoë', '李娜', '🦊'), ' ', i),
               timestamp('2024-01-01') + INTERVAL 7 * i MINUTE, i % 3 = 0""",
        20000,
    ),
    _filled(
        """INSERT INTO shop.products (sku, title, price, stock, colour, size, `manual`)
        SELECT concat('SKU-', lpad(i, 5, '0')), concat('Product ', i), (i % 500) + 0.99, 100000,
               elt(i % 3 + 1, 'red', 'green', 'blue'), nullif(i % 7, 0),
               repeat(sha2(i, 256), 50)""",
        1000,
    ),
    _filled(
        """INSERT INTO shop.orders (id, customer_id, status, total, placed_at)
        SELECT i, i % 20000 + 1, elt(i % 3 + 1, 'new', 'paid', 'shipped'), (i % 900) + 0.50,
               timestamp('2025-01-01') + INTERVAL 2 * i MINUTE""",
        60000,
    ),
    _filled(
        """INSERT INTO shop.order_lines (order_id, line, sku, quantity, price)
        SELECT (i - 1) DIV 2 + 1, i % 2 + 1, concat('SKU-', lpad(i % 1000 + 1, 5, '0')), i % 2 + 1,
               (i % 500) + 0.99""",
        120000,
    ),
    _filled(
        """INSERT INTO shop.carts (id, customer_id, skus, wrapping, weight_kg, expires_on, token)
        SELECT left(sha2(i, 256), 32), i, concat('SKU-00001,SKU-', lpad(i % 1000 + 1, 5, '0')),
               elt(i % 3 + 1, '', 'box', 'paper,ribbon'), i / 7.0,
               date('2026-01-01') + INTERVAL i % 365 DAY, unhex(left(sha2(i, 256), 32))""",
        5000,
    ),
    _filled("INSERT INTO shop.page_views (path) SELECT concat('/product/', i)", 1000),
    f"ANALYZE TABLE {', '.join(f'shop.{name}' for name in (*TABLES, KEYLESS))}",
)


_DEEDS: tuple[Deed, ...] = (
    Deed(
        "a customer orders",
        40,
        (
            """INSERT INTO shop.orders (customer_id, total)
            VALUES (%(r)s %% 20000 + 1, %(r)s %% 900 + 0.25)""",
            """INSERT INTO shop.order_lines (order_id, line, sku, quantity, price)
            SELECT last_insert_id(), line, concat('SKU-', lpad(%(r)s %% 1000 + 1, 5, '0')), line,
                   9.99
            FROM (SELECT 1 AS line UNION ALL SELECT 2) AS l""",
            """UPDATE shop.products SET stock = stock - 1
            WHERE sku = concat('SKU-', lpad(%(r)s %% 1000 + 1, 5, '0'))""",
        ),
    ),
    Deed(
        "an order moves on",
        25,
        (
            """UPDATE shop.orders SET status = CASE status WHEN 'new' THEN 'paid'
              WHEN 'paid' THEN 'shipped' ELSE 'returned' END
            WHERE id = %(r)s %% 50000 + 1""",
        ),
    ),
    Deed(
        "an order is cancelled",
        8,
        (
            "DELETE FROM shop.order_lines WHERE order_id = %(r)s %% 50000 + 1",
            "DELETE FROM shop.orders WHERE id = %(r)s %% 50000 + 1",
        ),
    ),
    Deed(
        "a customer subscribes",
        10,
        (
            """UPDATE shop.customers SET newsletter = NOT newsletter
            WHERE id = %(r)s %% 20000 + 1""",
        ),
    ),
    Deed(
        "a cart is filled",
        12,
        (
            """INSERT INTO shop.carts (id, customer_id, skus, wrapping, weight_kg, expires_on,
                                       token)
            VALUES (uuid(), %(r)s %% 4000 + 1, 'SKU-00007', 'ribbon', %(r)s / 3.0, current_date,
                    unhex(left(sha2(%(n)s, 256), 32)))""",
        ),
    ),
    Deed(
        "an old cart is dropped and comes back",
        3,
        (
            "DELETE FROM shop.carts WHERE id = left(sha2(%(r)s %% 4000 + 1, 256), 32)",
            """INSERT INTO shop.carts (id, customer_id, skus)
            VALUES (left(sha2(%(r)s %% 4000 + 1, 256), 32), 1, '')
            ON DUPLICATE KEY UPDATE customer_id = 1""",
        ),
    ),
    Deed(
        "a product gets a new number",
        2,
        (
            """UPDATE shop.products SET sku = concat(sku, 'B')
            WHERE sku = concat('SKU-', lpad(%(r)s %% 200 + 801, 5, '0'))""",
        ),
    ),
)


def _shop_of_kind(kind: str, title: str) -> ShopKind:
    """Return the demo's shop for MySQL or MariaDB, whose statements are the same."""
    return ShopKind(kind, title, _CREATE, _FILL, _DEEDS, WITNESSES)


MYSQL = _shop_of_kind("mysql", "MySQL")
MARIADB = _shop_of_kind("mariadb", "MariaDB")
