# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
acl inside {
  "10.0.0.0"/8;
  ! "10.1.0.0"/16;
  "192.168.0.0"/16;
  "localhost";
  "::1";
}
sub vcl_recv {
  if (client.ip ~ inside) { return (pass); }
}
