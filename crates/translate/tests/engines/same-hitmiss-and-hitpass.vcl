# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_deliver {
  if (req.is_hitmiss || req.is_hitpass) { set resp.http.a = "a"; }
}
