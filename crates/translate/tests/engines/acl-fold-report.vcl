# difference: acl-fold-report
# compiles on: 9.0
vcl 4.1;
backend none none;
acl inside +fold(-report) { "10.0.0.0"/8; }
sub vcl_recv {
  if (client.ip ~ inside) { return (pass); }
}
