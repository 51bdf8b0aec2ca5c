# difference: unused
# compiles on: 9.0
vcl 4.1;
backend none none;
acl inside { "10.0.0.0"/8; }
unused inside;
